//! Our Kubernetes object types, names and quantities. No I/O, ever.

pub mod quantity;
