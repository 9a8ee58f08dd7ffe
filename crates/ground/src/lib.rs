//! Kubernetes plumbing that every cluster role stands on. It knows no domain logic.
