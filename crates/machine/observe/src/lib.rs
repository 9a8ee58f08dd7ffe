//! From kernel figures to samples and what follows from them: the sampling round, history, derived statistics, OOM events.
//!
//! Kernel reads happen on one plain thread ([`sampler`]); everything that answers a request works from what that
//! thread left in the [`store`]. Nothing here writes a cgroup file.

pub mod collect;
pub mod derived;
pub mod disk_usage;
pub mod events;
pub mod groups;
pub mod machine;
mod monitor;
pub mod needs;
pub mod observer;
pub mod oom;
pub mod oom_watch;
pub mod processes;
pub mod sample;
pub mod sampler;
pub mod slow_sources;
pub mod store;
pub mod symbols;
pub mod timed_store;
pub mod usage;

pub use groups::{Group, GroupSet};
pub use monitor::MonitorWrites;
pub use observer::{Observer, OnDemandSampler, SampleRequest};
pub use sample::Sample;
pub use symbols::Symbol;
