//! The core from outside, in one program: it is linked once.

#![allow(clippy::unwrap_used)] // a test that cannot go on says so by panicking

mod hostile;
mod lifecycle;
mod properties;
mod reference;
