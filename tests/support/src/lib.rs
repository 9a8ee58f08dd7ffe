//! What the kernel tests, the runtime tests and the benches share: a small HTTP client, a reader of the exposition
//! text, cgroups and images of our own, child processes that are surely ended, and the runner that prints one line a test.
//!
//! Nothing here uses the crates under test: an expectation that comes from the code it checks proves nothing.

pub mod agent;
pub mod cgroup;
pub mod clock;
pub mod exposition;
pub mod hostile;
pub mod http;
pub mod image;
pub mod janitor;
pub mod log;
pub mod poll;
pub mod ports;
pub mod proc;
pub mod ratio;
pub mod report;
pub mod tar;
