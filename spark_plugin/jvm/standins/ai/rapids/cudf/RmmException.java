package ai.rapids.cudf;

/** A stand-in; see {@link StandIn}. */
public class RmmException extends RuntimeException {
  RmmException(String message) {
    super(message);
  }
}
