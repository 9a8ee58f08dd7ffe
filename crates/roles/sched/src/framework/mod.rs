//! The framework: plugins, their verdicts, the order in which they are asked.

pub mod diagnosis;
pub mod engine;
pub mod events;
pub mod judge;
pub mod local;
pub mod plugin;
pub mod profile;
pub mod score;
pub mod state;
pub mod status;
pub mod stopwatch;
pub mod workers;

pub use diagnosis::Diagnosis;
pub use engine::{Attempt, Choice, Decision, Engine};
pub use events::{Action, Change, ClusterEvent, Resource};
pub use plugin::{Plugin, PluginSet};
pub use profile::Profile;
pub use state::{Context, CycleState};
pub use status::{Code, Reason, Refusal, Status, StatusId, Statuses, Verdict};
