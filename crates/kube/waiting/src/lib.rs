//! What is said while something goes wrong.
//!
//! [`Episode`] decides when: at the first failure, again at growing intervals with the number of failures, and once when
//! it is over. It has no clock. [`Repeated`] is an episode with a clock, for those who have words of their own.
//! [`Waiting`] is one that also speaks, and that health checks can ask.

mod episode;
mod repeated;
mod waiting;

pub use episode::{Episode, Over, Times};
pub use repeated::{ByKey, Repeated};
pub use waiting::Waiting;
