/* Two MPI processes of which one works more: mpi barrier|receive|test|allreduce [ROUNDS]. */
#include "truth.h"
#include <mpi.h>
#include <string.h>

static volatile double sink;
static double work(long n) {
  double x = 1;
  for (long i = 0; i < n; i++) x = x * 1.0000001 + 0.5;
  return x;
}
int main(int argc, char **argv) {
  const char *kind = argc > 1 ? argv[1] : "barrier";
  int rounds = argc > 2 ? atoi(argv[2]) : 300, me;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  for (int round = 0; round < rounds; round++) {
    double mine = me, all;
    sink = work(me ? 300000 : 2500000);
    wait_begin();
    if (!strcmp(kind, "barrier")) MPI_Barrier(MPI_COMM_WORLD);
    else if (!strcmp(kind, "allreduce")) MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    else if (!strcmp(kind, "receive")) {
      if (me) MPI_Recv(&all, 1, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      else MPI_Send(&mine, 1, MPI_DOUBLE, 1, 7, MPI_COMM_WORLD);
    } else {
      MPI_Request request;
      if (me) MPI_Irecv(&all, 1, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD, &request);
      else MPI_Isend(&mine, 1, MPI_DOUBLE, 1, 7, MPI_COMM_WORLD, &request);
      for (int arrived = 0; !arrived;) MPI_Test(&request, &arrived, MPI_STATUS_IGNORE);
    }
    wait_end();
  }
  truth_tell();
  MPI_Finalize();
  return 0;
}
