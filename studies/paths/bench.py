"""Work for the Python interpreter: objects, dictionaries, strings, generators and integers, in fixed amounts."""


class Account:
    def __init__(self, number):
        self.number = number
        self.balance = 0

    def deposit(self, amount):
        if amount < 0:
            raise ValueError(amount)
        self.balance += amount
        return self


def collatz(limit):
    longest = 0
    for start in range(1, limit):
        n, steps = start, 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        longest = max(longest, steps)
    return longest


def accounts(count):
    all_accounts = {f"account {i}": Account(i) for i in range(500)}
    refused = 0
    for i in range(count):
        try:
            all_accounts[f"account {i * 7919 % 500}"].deposit(i % 13 - 1)
        except ValueError:
            refused += 1
    return refused, sum(account.balance for account in all_accounts.values())


def permutations(items):
    if len(items) < 2:
        yield items
        return
    for i, item in enumerate(items):
        for rest in permutations(items[:i] + items[i + 1:]):
            yield [item] + rest


def text(count):
    words = [chr(97 + i * i % 26) * (i % 5 + 1) for i in range(count)]
    counts = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3], len(" ".join(words).split("aa"))


print(collatz(100000), accounts(1500000), sum(p[0] for p in permutations(list(range(8)))), text(1500000))
