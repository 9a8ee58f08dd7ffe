//! Which program this is.

use plimsoll_golang::platform::own_goarch;
use serde::Serialize;

/// The release that this one behaves like.
pub const TAG: &str = "v0.9.0";
pub const VERSION: &str = concat!("v0.9.0+plimsoll.", env!("CARGO_PKG_VERSION"));
/// The Kubernetes release whose server library it behaves like.
const MINOR: &str = "36";
const MINIMUM_MINOR: &str = "35";

/// `/version`
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct About {
    major: &'static str,
    minor: &'static str,
    emulation_major: &'static str,
    emulation_minor: &'static str,
    min_compatibility_major: &'static str,
    min_compatibility_minor: &'static str,
    git_version: &'static str,
    git_commit: &'static str,
    git_tree_state: &'static str,
    build_date: &'static str,
    go_version: &'static str,
    compiler: &'static str,
    platform: String,
}

pub fn about() -> About {
    About {
        major: "1",
        minor: MINOR,
        emulation_major: "1",
        emulation_minor: MINOR,
        min_compatibility_major: "1",
        min_compatibility_minor: MINIMUM_MINOR,
        git_version: VERSION,
        git_commit: "",
        git_tree_state: "",
        build_date: "1970-01-01T00:00:00Z",
        go_version: "",
        compiler: "rustc",
        platform: format!("linux/{}", own_goarch()),
    }
}

/// `1.36`
pub fn release() -> String {
    format!("1.{MINOR}")
}
