//! The only code that changes the machine.
//!
//! Strategies and hooks say what they want as [`Plan`](plimsoll_plan::Plan)s, completely and as data. The [`Actuator`]
//! brings kernel files to it: it settles who wins where several want one value ([`merge`]), finds the file for cgroup v1,
//! v2 or both ([`Machine`]), writes only what differs from what the kernel has, in an order in which no child exceeds its
//! parent ([`arrange`]), reads back what it wrote, and journals what was there before, so that all of it can be told and
//! undone, also after this process was killed.
//!
//! ```no_run
//! use plimsoll_actuate::{Actuator, Config, Filter, Machine, Mode, Now};
//! use plimsoll_host::cgroup::Hierarchies;
//! use plimsoll_host::{Clock, HostRoot};
//! use plimsoll_plan::{Asker, Knob, Plan, Reason, Target, Value};
//!
//! let machine = Machine::new(HostRoot::new("/"), Hierarchies::v2("/sys/fs/cgroup"));
//! let mut config = Config::new(machine);
//! config.journal = Some("/var/lib/plimsoll/protection".into());
//! config.mode = Mode::Enforce;
//! let (mut actuator, recovered) = Actuator::open(config)?;
//! println!("{} values of an earlier process", recovered.targets.len());
//!
//! let mut plan = Plan::empty(Asker::CpuSuppress);
//! let tier = Target::cgroup(&"/kubepods/besteffort".into(), Knob::Cpuset);
//! let cpus = Value::Cpus([0, 1].into_iter().collect());
//! plan.want(tier, cpus, Reason::new("be_cpu_suppress"));
//! actuator.submit(plan);
//!
//! // Once a second, and whenever a plan has changed. `&()`: no base can be computed; what was found counts.
//! let applied = actuator.turn(Now::of(&Clock::Real), &());
//! println!("{} writes", applied.writes);
//!
//! // The end of a process gives nothing back. This does.
//! actuator.restore(&Filter::All, Now::of(&Clock::Real), &());
//! # Ok::<(), plimsoll_actuate::OpenError>(())
//! ```
//!
//! What an asker does not name any more goes back to its *base*: what the kubelet or the runtime would write now, if
//! [`Bases`](plimsoll_plan::Bases) can say; else the last value that somebody else wrote; else the value that was found.
//! A cgroup that is gone, or was made anew under its old name, gets nothing back.
//!
//! Values that somebody else changes are put right, but at most once in ten seconds a file, and once a minute if it goes
//! on. Who changes back what we write within two seconds, three times, is a second agent: then nothing is written any more.

mod actuator;
mod config;
mod durations;
mod entry;
mod error;
mod files;
mod journal;
mod merge;
mod monitor;
mod order;
mod place;
mod read;
mod sentence;
#[cfg(test)]
mod sim;
mod slow;
mod status;
mod text;
mod turn;
mod value;
mod weight;
mod write;

pub use actuator::Actuator;
pub use config::{Config, Mode, Now, Pace, UnknownMode};
pub use durations::{BOUNDS, Durations, Took};
pub use error::{OpenError, Unfit};
pub use files::{Files, KernelFile, MachineFiles};
pub use journal::{Line, Outcome, Why, read_journal};
pub use merge::{Merged, Rule, merge, rule};
pub use monitor::{Monitor, MonitorError};
pub use order::{Change, Step, arrange};
pub use place::{Form, Machine, Owner, Place, is_container};
pub use status::{
    Applied, Counters, Filter, Hold, Overruled, Recovered, SecondAgent, State, Status, TargetStatus,
};
pub use text::Piece;
pub use weight::WeightFormula;
