//! Events: what a component did, told to whoever runs `kubectl describe`.
//!
//! [`Recorder`] never makes its caller wait: events go through a bounded queue to one task. Most components write core
//! events, which are counted, combined and limited before they are sent ([`EventApi::Core`]); the scheduler writes those of
//! `events.k8s.io`, where repetitions become a series ([`EventApi::Series`]). Both as client-go does, so that people see
//! what they are used to and an API server is not flooded.

mod correlator;
mod object_reference;
mod recorder;
mod series;
mod sink;

#[cfg(test)]
mod tests;

pub use object_reference::Reference;
pub use recorder::{Built, Config, EventApi, EventNote, Kind, Recorder, RecorderTask};
