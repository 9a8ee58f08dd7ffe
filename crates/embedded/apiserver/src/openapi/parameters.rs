//! The parameters that operations take.

/// Name, type, and whether it is part of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    pub name: &'static str,
    pub kind: &'static str,
    pub in_path: bool,
    /// Those of the same name that differ in what they mean.
    pub variant: &'static str,
}

pub const fn query(name: &'static str, kind: &'static str) -> Parameter {
    Parameter {
        name,
        kind,
        in_path: false,
        variant: "",
    }
}

pub const fn variant(name: &'static str, kind: &'static str, variant: &'static str) -> Parameter {
    Parameter {
        name,
        kind,
        in_path: false,
        variant,
    }
}

pub const fn in_path(name: &'static str) -> Parameter {
    Parameter {
        name,
        kind: "string",
        in_path: true,
        variant: "",
    }
}

pub const PRETTY: Parameter = query("pretty", "string");
pub const LIST: [Parameter; 11] = [
    query("allowWatchBookmarks", "boolean"),
    query("continue", "string"),
    query("fieldSelector", "string"),
    query("labelSelector", "string"),
    query("limit", "integer"),
    query("resourceVersion", "string"),
    query("resourceVersionMatch", "string"),
    query("sendInitialEvents", "boolean"),
    query("shardSelector", "string"),
    query("timeoutSeconds", "integer"),
    query("watch", "boolean"),
];
pub const WRITE: [Parameter; 3] = [
    query("dryRun", "string"),
    query("fieldManager", "string"),
    query("fieldValidation", "string"),
];
pub const PATCH: [Parameter; 4] = [
    query("dryRun", "string"),
    variant("fieldManager", "string", "patch"),
    query("fieldValidation", "string"),
    query("force", "boolean"),
];
pub const DELETE: [Parameter; 5] = [
    query("dryRun", "string"),
    query("gracePeriodSeconds", "integer"),
    query(
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
    ),
    query("orphanDependents", "boolean"),
    query("propagationPolicy", "string"),
];
pub const LOG: [Parameter; 10] = [
    variant("container", "string", "log"),
    query("follow", "boolean"),
    query("insecureSkipTLSVerifyBackend", "boolean"),
    query("limitBytes", "integer"),
    query("previous", "boolean"),
    query("sinceSeconds", "integer"),
    query("stream", "string"),
    query("tailLines", "integer"),
    query("timestamps", "boolean"),
    PRETTY,
];
pub const EXEC: [Parameter; 6] = [
    query("command", "string"),
    variant("container", "string", "exec"),
    variant("stderr", "boolean", "exec"),
    variant("stdin", "boolean", "exec"),
    variant("stdout", "boolean", "exec"),
    variant("tty", "boolean", "exec"),
];
pub const ATTACH: [Parameter; 5] = [
    variant("container", "string", "attach"),
    variant("stderr", "boolean", "attach"),
    variant("stdin", "boolean", "attach"),
    variant("stdout", "boolean", "attach"),
    variant("tty", "boolean", "attach"),
];
