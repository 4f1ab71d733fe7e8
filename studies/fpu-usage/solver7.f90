! Stands in for bwaves: block relaxation of five coupled quantities on a three-dimensional grid with
! seven-point neighbourhoods, as its stabilised bi-conjugate gradient solver does; written for this study.
program solver7
  implicit none
  integer, parameter :: n = 40
  real(8) :: a(5, 5, 7, n, n, n), x(5, 0:n+1, 0:n+1, 0:n+1), y(5, n, n, n)
  integer :: i, j, k, l, m, round
  common /data/ a, x, y
  a = 0.01d0
  x = 1.0d0
  do round = 1, 1000000
    do k = 1, n
      do j = 1, n
        do i = 1, n
          do l = 1, 5
            y(l, i, j, k) = 0
            do m = 1, 5
              y(l, i, j, k) = y(l, i, j, k) + a(l, m, 1, i, j, k) * x(m, i, j, k) &
                + a(l, m, 2, i, j, k) * x(m, i-1, j, k) + a(l, m, 3, i, j, k) * x(m, i+1, j, k) &
                + a(l, m, 4, i, j, k) * x(m, i, j-1, k) + a(l, m, 5, i, j, k) * x(m, i, j+1, k) &
                + a(l, m, 6, i, j, k) * x(m, i, j, k-1) + a(l, m, 7, i, j, k) * x(m, i, j, k+1)
            end do
          end do
        end do
      end do
    end do
    x(:, 1:n, 1:n, 1:n) = 0.9d0 * x(:, 1:n, 1:n, 1:n) + 0.1d0 * y
  end do
  print *, sum(x)
end program
