package ai.rapids.cudf;

/** A stand-in; see {@link StandIn}. */
public class CudaException extends RuntimeException {
  CudaException(String message) {
    super(message);
  }
}
