! Kernels in Fortran that the rules have not seen: fortran NAME computes one of them for ever.
program kernels
  implicit none
  character(20) :: name
  call get_command_argument(1, name)
  select case (name)
  case ('tridiagonal'); call tridiagonal
  case ('legendre'); call legendre
  case ('sieve'); call sieve
  end select
contains
  subroutine tridiagonal
    integer, parameter :: n = 2000
    real(8) :: a(n), b(n), c(n), d(n), f
    integer :: i
    do
      a = -1; b = 2.1d0; c = -1; d = 1
      do i = 2, n
        f = a(i) / b(i - 1)
        b(i) = b(i) - f * c(i - 1)
        d(i) = d(i) - f * d(i - 1)
      end do
      d(n) = d(n) / b(n)
      do i = n - 1, 1, -1
        d(i) = (d(i) - c(i) * d(i + 1)) / b(i)
      end do
      if (d(1) < -1d9) print *, d(1)
    end do
  end subroutine
  subroutine legendre
    real(8) :: x, p0, p1, p2, total
    integer :: i, k
    do
      total = 0
      do i = 1, 1000
        x = i / 1000d0; p0 = 1; p1 = x
        do k = 2, 40
          p2 = ((2 * k - 1) * x * p1 - (k - 1) * p0) / k
          p0 = p1; p1 = p2
        end do
        total = total + p1
      end do
      if (total > 1d9) print *, total
    end do
  end subroutine
  subroutine sieve
    logical(1) :: composite(1000000)
    integer :: i, j
    do
      composite = .false.
      do i = 2, 1000
        if (.not. composite(i)) then
          do j = i * i, 1000000, i
            composite(j) = .true.
          end do
        end if
      end do
      if (count(composite) < 0) print *, 1
    end do
  end subroutine
end program
