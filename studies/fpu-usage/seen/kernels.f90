! Kernels of programs that the rules have not seen, in Fortran.
program kernels
    implicit none
    character(len=16) :: name
    call get_command_argument(1, name)
    select case (name)
    case ('heat')
        call heat()
    case ('matmul')
        call multiply()
    case ('collatz')
        call collatz()
    end select
contains
    subroutine heat()
        real(8) :: u(300, 300), v(300, 300)
        integer :: i, j
        u = 0
        u(150, 150) = 1000
        do
            do j = 2, 299
                do i = 2, 299
                    v(i, j) = u(i, j) + 0.1d0 * (u(i-1, j) + u(i+1, j) + u(i, j-1) + u(i, j+1) - 4 * u(i, j))
                end do
            end do
            u(2:299, 2:299) = v(2:299, 2:299)
            if (u(150, 150) < 1) u(150, 150) = 1000
        end do
    end subroutine
    subroutine multiply()
        real(8) :: a(200, 200), b(200, 200), c(200, 200)
        call random_number(a)
        call random_number(b)
        do
            c = matmul(a, b)
            a = c / maxval(abs(c))
        end do
    end subroutine
    subroutine collatz()
        integer(8) :: n, x, steps
        steps = 0
        n = 1
        do
            n = mod(n, 1000000_8) + 1
            x = n
            do while (x /= 1)
                if (mod(x, 2_8) == 0) then
                    x = x / 2
                else
                    x = 3 * x + 1
                end if
                steps = steps + 1
            end do
            if (steps < 0) print *, steps
        end do
    end subroutine
end program
