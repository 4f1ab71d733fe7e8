/** The kernels of scimark.c for the Java compiler at run time: SciMark KIND runs one for ever. */
public final class SciMark {
    private static int seed = 12345;
    private static volatile double sink;

    private static double randomUnit() {
        seed = seed * 1103515245 + 12345;
        return (seed >>> 1) / 2147483648.0;
    }

    private static final double[] re = new double[1024], im = new double[1024];

    private static double fft() {
        int n = re.length;
        for (int i = 0; i < n; i++) {
            re[i] = randomUnit();
            im[i] = 0;
        }
        for (int i = 1, j = 0; i < n; i++) {
            int bit = n >> 1;
            for (; (j & bit) != 0; bit >>= 1) j ^= bit;
            j ^= bit;
            if (i < j) {
                double t = re[i];
                re[i] = re[j];
                re[j] = t;
            }
        }
        for (int length = 2; length <= n; length <<= 1) {
            double angle = -2 * Math.PI / length, stepRe = Math.cos(angle), stepIm = Math.sin(angle);
            double wRe = 1, wIm = 0;
            for (int k = 0; k < length / 2; k++) {
                for (int i = k; i < n; i += length) {
                    int j = i + length / 2;
                    double x = re[j] * wRe - im[j] * wIm, y = re[j] * wIm + im[j] * wRe;
                    re[j] = re[i] - x;
                    im[j] = im[i] - y;
                    re[i] += x;
                    im[i] += y;
                }
                double t = wRe * stepRe - wIm * stepIm;
                wIm = wRe * stepIm + wIm * stepRe;
                wRe = t;
            }
        }
        return re[1];
    }

    private static final double[][] grid = new double[100][100];

    private static double sor() {
        for (int i = 1; i < 99; i++) {
            double[] row = grid[i], above = grid[i - 1], below = grid[i + 1];
            for (int j = 1; j < 99; j++)
                row[j] = 0.3125 * (above[j] + below[j] + row[j - 1] + row[j + 1]) - 0.25 * row[j];
        }
        return grid[5][5];
    }

    private static final int[] lagged = new int[17];
    private static int lagI = 4, lagJ = 16;

    /** Synchronized, as SciMark's generator is. */
    private static synchronized double laggedNext() {
        int k = lagged[lagI] - lagged[lagJ];
        if (k < 0) k += Integer.MAX_VALUE;
        lagged[lagJ] = k;
        lagI = lagI == 0 ? 16 : lagI - 1;
        lagJ = lagJ == 0 ? 16 : lagJ - 1;
        return k * (1.0 / Integer.MAX_VALUE);
    }

    private static double monteCarlo() {
        int inside = 0;
        for (int i = 0; i < 10000; i++) {
            double x = laggedNext(), y = laggedNext();
            if (x * x + y * y <= 1) inside++;
        }
        return inside;
    }

    private static final double[] value = new double[5000], x = new double[1000], y = new double[1000];
    private static final int[] row = new int[1001], column = new int[5000];

    private static double sparse() {
        for (int r = 0; r < 1000; r++) {
            double sum = 0;
            for (int i = row[r]; i < row[r + 1]; i++) sum += x[column[i]] * value[i];
            y[r] = sum;
        }
        return y[7];
    }

    private static final double[][] a = new double[100][100];

    private static double lu() {
        for (double[] line : a) for (int i = 0; i < 100; i++) line[i] = randomUnit();
        for (int j = 0; j < 100; j++) {
            int pivot = j;
            for (int i = j + 1; i < 100; i++) if (Math.abs(a[i][j]) > Math.abs(a[pivot][j])) pivot = i;
            double[] line = a[j];
            a[j] = a[pivot];
            a[pivot] = line;
            for (int i = j + 1; i < 100; i++) {
                double factor = a[i][j] /= a[j][j];
                double[] target = a[i], source = a[j];
                for (int k = j + 1; k < 100; k++) target[k] -= factor * source[k];
            }
        }
        return a[3][3];
    }

    public static void main(String[] arguments) {
        for (int i = 0; i < 17; i++) lagged[i] = (int) (randomUnit() * 2147483646);
        for (double[] line : grid) for (int i = 0; i < 100; i++) line[i] = randomUnit();
        for (int r = 0; r <= 1000; r++) row[r] = r * 5;
        for (int i = 0; i < 5000; i++) {
            column[i] = (i / 25 * (i % 5)) % 1000;
            value[i] = randomUnit();
        }
        while (true) {
            switch (arguments[0]) {
                case "fft" -> sink = fft();
                case "sor" -> sink = sor();
                case "mc" -> sink = monteCarlo();
                case "mm" -> sink = sparse();
                case "lu" -> sink = lu();
                default -> throw new IllegalArgumentException(arguments[0]);
            }
        }
    }
}
