package kolumn;

import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;

/** Kernels on the GPU, loaded once for all workers and for as long as this process lasts. */
final class Kernels {
  private static final Map<String, Long> MODULES = new HashMap<>();

  private Kernels() {}

  /** A kernel of a worker, which is loaded when it is launched for the first time. */
  static final class Kernel {
    private final String name;
    private byte[] image;
    private long function;

    Kernel(String name, byte[] image) {
      this.name = name;
      this.image = image;
    }

    long function() {
      if (image != null) {
        long[] found = new long[1];
        Driver.check(Driver.getFunction(module(name, image), name, found), "finding the kernel " + name);
        function = found[0];
        image = null;
      }
      return function;
    }
  }

  private static synchronized long module(String name, byte[] image) {
    String key = digest(image);
    Long known = MODULES.get(key);
    if (known == null) {
      long[] found = new long[1];
      Driver.check(Driver.loadModule(image, found), "loading the kernel " + name);
      known = found[0];
      MODULES.put(key, known);
    }
    return known;
  }

  private static String digest(byte[] image) {
    try {
      return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(image));
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException(e);
    }
  }
}
