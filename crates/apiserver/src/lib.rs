//! The embedded Kubernetes API server: for `plimsoll up`, tests and simulation. In production there is the real one.
