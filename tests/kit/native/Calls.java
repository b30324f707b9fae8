package kolumn;

import ai.rapids.cudf.BaseDeviceMemoryBuffer;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import sun.misc.Unsafe;

/** Lets Python call what is not public: static methods of this package, and memory of this process. */
public final class Calls {
  private Calls() {}

  /** Calls a method; returns what it returns, and the arrays of numbers that it was given. Lists are arrays of numbers. */
  public static List<Object> call(String kind, String name, List<Object> given) throws Throwable {
    for (Method method : Class.forName("kolumn." + kind).getDeclaredMethods()) {
      if (method.getName().equals(name) && method.getParameterCount() == given.size()) {
        Object[] arguments = new Object[given.size()];
        List<Object> answer = new ArrayList<>();
        for (int i = 0; i < arguments.length; i++) {
          arguments[i] = as(method.getParameterTypes()[i], given.get(i));
        }
        try {
          answer.add(method.invoke(null, arguments));
        } catch (InvocationTargetException e) {
          throw e.getCause();
        }
        for (Object argument : arguments) {
          if (argument instanceof long[] || argument instanceof int[]) {
            answer.add(argument);
          }
        }
        return answer;
      }
    }
    throw new NoSuchMethodException(kind + "." + name);
  }

  /** Calls methods of Driver on a thread of their own: each is a name, and what the method is given. */
  public static List<Object> elsewhere(List<List<Object>> calls) throws InterruptedException {
    List<Object> answers = new ArrayList<>();
    Thread thread = new Thread(() -> {
      for (List<Object> one : calls) {
        try {
          answers.add(call("Driver", (String) one.get(0), one.subList(1, one.size())).get(0));
        } catch (Throwable e) {
          answers.add(e.toString());
        }
      }
    });
    thread.start();
    thread.join();
    return answers;
  }

  private static Object as(Class<?> type, Object given) {
    if (type == long.class) {
      return ((Number) given).longValue();
    }
    if (type == long[].class) {
      return ((List<?>) given).stream().mapToLong(number -> ((Number) number).longValue()).toArray();
    }
    if (type == int[].class) {
      return ((List<?>) given).stream().mapToInt(number -> ((Number) number).intValue()).toArray();
    }
    return given;
  }

  /** Python's small numbers come as an Integer. */
  public static Optional<Long> optional(long number) {
    return Optional.of(number);
  }

  /** Copies bytes into memory of the host, which {@link #release} gives back. */
  public static long held(byte[] bytes) throws ReflectiveOperationException {
    long address = unsafe().allocateMemory(bytes.length + 1);
    unsafe().copyMemory(bytes, Unsafe.ARRAY_BYTE_BASE_OFFSET, null, address, bytes.length);
    return address;
  }

  public static byte[] read(long address, int size) throws ReflectiveOperationException {
    byte[] bytes = new byte[size];
    unsafe().copyMemory(null, address, bytes, Unsafe.ARRAY_BYTE_BASE_OFFSET, size);
    return bytes;
  }

  public static void release(long address) throws ReflectiveOperationException {
    unsafe().freeMemory(address);
  }

  public static byte[] bytes(BaseDeviceMemoryBuffer buffer) throws ReflectiveOperationException {
    return buffer == null ? null : read(buffer.getAddress(), (int) buffer.getLength());
  }

  private static Unsafe unsafe() throws ReflectiveOperationException {
    Field one = Unsafe.class.getDeclaredField("theUnsafe");
    one.setAccessible(true);
    return (Unsafe) one.get(null);
  }
}
