//! Many cgroups with a sleeping process each: the bench's containers.

use std::process::Child;

use anyhow::{Context, Result};
use plimsoll_test_support::cgroup::{Group, Mounts};
use plimsoll_test_support::janitor::{self, Janitor};

/// UIDs of pods, with the ids of their containers.
pub type Pods = Vec<(String, Vec<String>)>;

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

    /// Cgroups as a kubelet and its runtime lay them out, with a process in each container.
    pub fn pods(&mut self, pods: usize, containers: usize) -> Result<Pods> {
        let mut made: Pods = Vec::new();
        for name in ["kubepods", "kubepods/burstable", "kubepods/besteffort"] {
            self.group(name)?;
        }
        for pod in 0..pods {
            let class = ["burstable/", "", "besteffort/"][pod % 3];
            let uid = format!("{pod:08x}-0000-4000-8000-{:012x}", std::process::id());
            let dir = format!("kubepods/{class}pod{uid}");
            self.group(&dir)?;
            let first = pod * containers / pods;
            let ids: Vec<String> = (first..(pod + 1) * containers / pods)
                .map(|container| format!("{container:064x}"))
                .collect();
            for id in &ids {
                let group = self.group(&format!("{dir}/{id}"))?;
                let child = janitor::sleeper(&group)?;
                self.members.push((group, child));
            }
            made.push((uid, ids));
        }
        Ok(made)
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
