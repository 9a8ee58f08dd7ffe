//! The program as people start it. One binary, so that it is linked once.

#![allow(clippy::unwrap_used)] // a test that cannot go on says so by panicking

mod remember;
mod up;
