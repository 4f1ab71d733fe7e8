// Matrices, a sieve, closures, text and JSON: other work than that which is measured.
function matrix(n) {
	var a = [], i, j;
	for (i = 0; i < n; ++i) { a[i] = []; for (j = 0; j < n; ++j) a[i][j] = (i * j) % 7 + 0.5; }
	return a;
}
function product(a, b) {
	var n = a.length, c = [], i, j, k, sum;
	for (i = 0; i < n; ++i) {
		c[i] = [];
		for (j = 0; j < n; ++j) { sum = 0; for (k = 0; k < n; ++k) sum += a[i][k] * b[k][j]; c[i][j] = sum; }
	}
	return c;
}
function sieve(limit) {
	var composite = [], count = 0, i, j;
	for (i = 2; i < limit; ++i) if (!composite[i]) { ++count; for (j = i * 2; j < limit; j += i) composite[j] = true; }
	return count;
}
function fibonacci(n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

var result = product(matrix(60), matrix(60))[7][9] + sieve(60000) + fibonacci(20), seen = {}, parts = [], i, word;
for (i = 0; i < 12000; ++i) {
	word = "w" + (i * 7919) % 4096;
	seen[word] = (seen[word] || 0) + 1;
	if (i % 16 === 0) parts.push(word.toUpperCase().substring(1));
}
var records = parts.map(function (part, index) { return { part: part, index: index }; });
var text = JSON.stringify(records);
result += JSON.parse(text).filter(function (record) { return record.index % 3 === 1; }).length;
print(result, text.length, text.split(",").length, parts.reduce(function (sum, part) { return sum + part.length; }, 0));
