//! The scheduler on the embedded API server, in one program: it is linked once.

#![allow(clippy::unwrap_used)] // a test that cannot go on says so by panicking

mod embedded;
mod extenders;
mod faults;
mod support;
