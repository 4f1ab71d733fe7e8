// Calls, objects, strings, regular expressions and sorting. The rounds are set by the line before.
function queens(size, row, columns, up, down) {
	var found = 0, column;
	if (row === size) return 1;
	for (column = 0; column < size; ++column) {
		if (columns[column] || up[row + column] || down[row - column + size]) continue;
		columns[column] = up[row + column] = down[row - column + size] = 1;
		found += queens(size, row + 1, columns, up, down);
		columns[column] = up[row + column] = down[row - column + size] = 0;
	}
	return found;
}

function Tree(key) { this.key = key; this.left = null; this.right = null; }
Tree.prototype.insert = function (key) {
	var node = this;
	for (;;) {
		var side = key < node.key ? "left" : "right";
		if (node[side] === null) { node[side] = new Tree(key); return; }
		node = node[side];
	}
};
Tree.prototype.depth = function () {
	var left = this.left ? this.left.depth() : 0, right = this.right ? this.right.depth() : 0;
	return 1 + (left > right ? left : right);
};

var total = 0, seed = 42, round, i;
for (round = 0; round < rounds; ++round) {
	total += queens(5 + round % 2, 0, [], [], []);
	var list = [], tree = new Tree(1 << 14);
	for (i = 0; i < 300; ++i) {
		seed = (seed * 16807) % 2147483647;
		tree.insert(seed % (1 << 15));
		list.push((seed % 100000).toString(16).replace(/[0-4]/g, "z"));
	}
	total += tree.depth();
	list.sort();
	var text = list.join(" "), match, word = /[a-z]+/g;
	while ((match = word.exec(text)) !== null) total += match[0].length;
	for (i = 0; i < 2000; ++i) total += (i * 37) % 11 > 5 ? 1 : -1;
}
print(total);
