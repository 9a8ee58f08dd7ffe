//! Events: what a component did, told to whoever runs `kubectl describe`.
//!
//! [`Recorder`] never makes its caller wait: events go through a bounded queue to one task. Most components write core
//! events, which are counted, combined and limited before they are sent ([`Style::Core`]); the scheduler writes those of
//! `events.k8s.io`, where repetitions become a series ([`Style::Series`]). Both as client-go does, so that people see
//! what they are used to and an API server is not flooded.

mod correlate;
mod recorder;
mod reference;
mod send;
mod series;

#[cfg(test)]
mod tests;

pub use recorder::{Built, Config, Kind, Note, Recorder, Recording, Style};
pub use reference::Reference;
