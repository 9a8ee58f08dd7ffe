//! Our Kubernetes object types, names and quantities. Empty until a role needs the first of them; no I/O, ever.
