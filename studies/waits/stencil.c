/* Sweeps over a cube within one parallel region, with a barrier after each of them, as in many solvers.
 * The argument is how many times as many sweeps there are. */
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 40, SWEEPS = 6000 };

static double cells[2][SIDE][SIDE][SIDE];

int main(int argc, char **argv)
{
	long sweeps = SWEEPS * (argc > 1 ? atol(argv[1]) : 1);

	for (int z = 0; z < SIDE; z++)
		for (int y = 0; y < SIDE; y++)
			for (int x = 0; x < SIDE; x++)
				cells[0][z][y][x] = cells[1][z][y][x] = (z * 7 + y * 5 + x * 3) % 11;
#pragma omp parallel
	for (long sweep = 0; sweep < sweeps; sweep++) {
		double (*from)[SIDE][SIDE] = cells[sweep % 2], (*to)[SIDE][SIDE] = cells[1 - sweep % 2];
#pragma omp for schedule(static)
		for (int z = 1; z < SIDE - 1; z++)
			for (int y = 1; y < SIDE - 1; y++)
				for (int x = 1; x < SIDE - 1; x++)
					to[z][y][x] = (from[z - 1][y][x] + from[z + 1][y][x] + from[z][y - 1][x] + from[z][y + 1][x] +
					               from[z][y][x - 1] + from[z][y][x + 1]) / 6;
	}
	printf("%.12f\n", cells[0][SIDE / 2][SIDE / 2][SIDE / 3]);
	return 0;
}
