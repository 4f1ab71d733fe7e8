import java.util.stream.IntStream;

/** Java: so many parallel streams of some 50 µs, on the main thread and the common ForkJoinPool: Regions COUNT. */
public class Regions {
  static final int N = 65536;

  public static void main(String[] arguments) {
    double[] x = new double[N];
    double sum = 0;
    for (int region = 0, regions = Integer.parseInt(arguments[0]); region < regions; region++) {
      IntStream.range(0, 8).parallel().forEach(part -> {
        for (int i = part * N / 8; i < (part + 1) * N / 8; i++) x[i] = x[i] * 0.999 + i / (1 + x[i] * x[i]);
      });
      sum += x[region % N];
    }
    System.out.printf("%.9f%n", sum);
  }
}
