/* MPI ranks that add up a number over all of them every 50 µs: they poll while they wait for each other. The
 * argument is the number of rounds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 10000;
	double own = 1, sum = 0;
	int rank;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (long round = 0; round < rounds; round++) {
		for (int i = 0; i < 30000; i++)
			own = own * 0.999999 + 1e-6;
		MPI_Allreduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		own = sum / 2;
	}
	if (rank == 0)
		printf("%.12f\n", sum);
	MPI_Finalize();
}
