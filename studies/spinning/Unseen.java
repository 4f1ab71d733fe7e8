import java.io.FileWriter;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.*;
import java.util.HashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;

/** Waits and work in Java: Unseen hint|bare|queue|time|works. */
public class Unseen {
  static final ThreadMXBean clock = ManagementFactory.getThreadMXBean();
  static final AtomicLong made = new AtomicLong();
  static final ConcurrentLinkedQueue<Long> queue = new ConcurrentLinkedQueue<>();
  static volatile boolean done;
  static volatile double sink;

  static double cpu() { return clock.getCurrentThreadCpuTime() * 1e-9; }
  static double work(long n) { double x = 1; for (long i = 0; i < n; i++) x = x * 1.0000001 + 0.5; return x; }
  static synchronized void tell(double waited) throws Exception {
    String path = System.getenv("TRUTH");
    if (path == null) return;
    String tid = Files.readSymbolicLink(Path.of("/proc/thread-self")).getFileName().toString();
    try (FileWriter file = new FileWriter(path, true)) { file.write(tid + " " + waited + " " + cpu() + "\n"); }
  }
  static void await(String kind, long seen) {
    switch (kind) {
      case "hint": while (made.get() == seen && !done) Thread.onSpinWait(); break;
      case "bare": while (made.get() == seen && !done) {} break;
      case "queue": while (queue.poll() == null && !done) {} break;
      case "time": { long until = System.nanoTime() + 9_000_000_000L; while (made.get() == seen && !done && System.nanoTime() < until) {} break; }
    }
  }
  public static void main(String[] arguments) throws Exception {
    String kind = arguments[0];
    if (kind.equals("works")) {
      while (cpu() < 1.5) { HashMap<Integer, Integer> counts = new HashMap<>(); for (int i = 0; i < 20000; i++) counts.merge(i * 7919 % 997, 1, Integer::sum); sink = counts.size(); }
      tell(0);
      return;
    }
    Thread waiter = new Thread(() -> {
      double waited = 0;
      long seen = 0;
      while (!done) { double since = cpu(); await(kind, seen); waited += cpu() - since; seen = made.get(); sink = work(100000); }
      try { tell(waited); } catch (Exception e) { throw new RuntimeException(e); }
    });
    waiter.start();
    while (cpu() < 1) { sink = work(1500000); made.incrementAndGet(); queue.add(1L); }
    done = true;
    waiter.join();
    tell(0);
  }
}
