//! Many cgroups with a sleeping process each: the bench's containers.

use std::process::Child;

use anyhow::{Context, Result};
use plimsoll_test_support::cgroup::{Group, Mounts};
use plimsoll_test_support::janitor::{self, Janitor};

#[derive(Debug)]
pub struct Crowd {
    mounts: Mounts,
    top: String,
    members: Vec<(Group, Child)>,
    janitor: Janitor,
}

impl Crowd {
    pub fn new() -> Result<Self> {
        let mounts = Mounts::detect()?;
        let mut janitor = Janitor::start()?;
        let top = format!("/plimsoll-bench-{}", std::process::id());
        // Told before anything is made: an interrupt at any moment leaves nothing behind.
        janitor.cgroup(&top)?;
        Ok(Self {
            mounts,
            top,
            members: Vec::new(),
            janitor,
        })
    }

    /// Makes it this large; it never shrinks.
    pub fn grow(&mut self, size: usize) -> Result<()> {
        while self.members.len() < size {
            let group = self.group(&self.members.len().to_string())?;
            let child = janitor::sleeper(&group)?;
            self.members.push((group, child));
        }
        Ok(())
    }

    /// Another cgroup beside the members, without a process.
    pub fn group(&self, name: &str) -> Result<Group> {
        Group::create(&self.mounts, &format!("{}/{name}", self.top))
    }

    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|(group, _)| group.path())
    }

    pub fn top(&self) -> &str {
        &self.top
    }

    /// Ends the processes and removes the cgroups.
    pub fn end(mut self) -> Result<()> {
        for (_, child) in &mut self.members {
            drop(child.stdin.take());
        }
        for (group, child) in &mut self.members {
            child
                .wait()
                .with_context(|| format!("end of the process in {}", group.path()))?;
        }
        self.janitor.finish()
    }
}
