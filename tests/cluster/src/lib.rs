//! The embedded API server and a real one, given the same requests.
