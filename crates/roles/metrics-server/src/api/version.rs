//! The versions of the API. They differ in nothing but their name.

pub const GROUP: &str = "metrics.k8s.io";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    V1beta1,
    V1,
}

impl Version {
    pub fn of(name: &str) -> Option<Self> {
        [Self::V1beta1, Self::V1]
            .into_iter()
            .find(|one| one.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::V1beta1 => "v1beta1",
            Self::V1 => "v1",
        }
    }

    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1beta1 => "metrics.k8s.io/v1beta1",
            Self::V1 => "metrics.k8s.io/v1",
        }
    }
}

/// What discovery tells of, first choice first. Both are always served; the newer one is told of where it is wanted,
/// because clients that know it prefer it, and the API server must know it too by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Announced {
    pub v1: bool,
    /// The history of workloads, in a group of its own.
    pub past: bool,
}

impl Announced {
    pub fn versions(self) -> &'static [Version] {
        if self.v1 {
            &[Version::V1, Version::V1beta1]
        } else {
            &[Version::V1beta1]
        }
    }
}
