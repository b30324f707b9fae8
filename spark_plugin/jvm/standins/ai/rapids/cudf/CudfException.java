package ai.rapids.cudf;

/** A stand-in; see {@link StandIn}. */
public class CudfException extends RuntimeException {
  CudfException(String message) {
    super(message);
  }
}
