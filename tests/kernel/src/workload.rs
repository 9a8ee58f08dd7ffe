//! Small programs that use one resource each. They run inside a cgroup and tell on standard output when they are set.

use anyhow::{Result, bail};

pub fn run(arguments: &[String]) -> Result<()> {
    match arguments.first().map(String::as_str) {
        other => bail!("no workload {other:?}"),
    }
}
