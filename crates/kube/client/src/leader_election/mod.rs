//! Leader election on a Lease, compatible with client-go's.
//!
//! [`Elector`] is the whole protocol as a state machine without a clock or a network: it is told the time and what the
//! API server answered, and says what to do next. [`LeaderElector`] drives it against a real Lease. Times in the Lease are
//! never compared with a clock of ours: a lease expires when this process has seen no change of it for its duration, by
//! its own monotonic clock. So clocks may be wrong by any amount, as long as none runs a quarter faster than another:
//! a leader gives up a retry period and a renew deadline (12 s) after its last renewal, others wait for 15 s.
//!
//! There is no fencing: a leader that cannot renew has to stop by itself, before others may take over. Beyond what
//! client-go does, ours stops as soon as it sees that somebody else holds the lease, and [`Leadership::is_leader`]
//! turns false before the lease can have expired, even if the process was paused and had no chance to notice. Every write
//! asks it: [`Leadership::guard`] before each step of a request, which is cut off when leading ends, and
//! `clients::Clients::writer` once more before each byte goes to the network.

mod candidate;
mod config;
mod elector;
mod leadership;

#[cfg(test)]
mod tests;

pub use candidate::{ElectionResult, LeaderElector};
pub use config::{Config, ConfigError, new_identity};
pub use elector::{Action, Answer, Elector, Now, Transition};
pub use leadership::{Leadership, NotLeading};
