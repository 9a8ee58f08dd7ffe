//! The pod security levels.

use std::collections::BTreeSet;

use super::all_containers;
use crate::kinds::at::At;
use plimsoll_golang::strconv::quote;

/// Capabilities that containers have anyway.
const USUAL_CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

const SAFE_SYSCTLS: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

const SAFE_VOLUMES: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// How a pod falls short of a level.
pub fn violations(spec: &At<'_>, level: &str) -> Vec<String> {
    let mut out = Vec::new();
    let restricted = level == "restricted";
    if !restricted && level != "baseline" {
        return out;
    }
    baseline(spec, restricted, &mut out);
    if restricted && spec.dig(&["os", "name"]).text() != "windows" {
        self::restricted(spec, &mut out);
    } else if restricted {
        restricted_volumes(spec, &mut out);
        users(spec, &mut out);
    }
    out
}

/// `container "a"` or `containers "a", "b"`.
fn counted(noun: &str, names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| quote(name)).collect();
    let plural = if names.len() == 1 { "" } else { "s" };
    format!("{noun}{plural} {}", quoted.join(", "))
}

fn quoted<'s>(names: impl IntoIterator<Item = &'s str>) -> String {
    let names: Vec<String> = names.into_iter().map(quote).collect();
    names.join(", ")
}

/// Names of the containers of which something holds.
fn those<'v>(spec: &At<'v>, holds: impl Fn(&At<'v>) -> bool) -> Vec<&'v str> {
    all_containers(spec)
        .filter(|container| holds(container))
        .map(|container| container.get("name").text())
        .collect()
}

fn context<'v>(container: &At<'v>, field: &'v str) -> At<'v> {
    container.dig(&["securityContext", field])
}

fn added_capabilities<'v>(container: &At<'v>) -> Vec<&'v str> {
    container
        .dig(&["securityContext", "capabilities", "add"])
        .texts()
        .collect()
}

/// What `restricted` checks more strictly is left to it.
fn baseline(spec: &At<'_>, restricted: bool, out: &mut Vec<String>) {
    if !restricted {
        let unusual = |capability: &&str| !USUAL_CAPABILITIES.contains(capability);
        let bad = those(spec, |one| added_capabilities(one).iter().any(unusual));
        let added: BTreeSet<&str> = all_containers(spec)
            .flat_map(|one| added_capabilities(&one))
            .filter(unusual)
            .collect();
        if !bad.is_empty() {
            out.push(format!(
                "non-default capabilities ({} must not include {} in securityContext.capabilities.add)",
                counted("container", &bad),
                quoted(added)
            ));
        }
    }
    let host: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .iter()
        .filter(|name| spec.get(name).flag())
        .map(|name| format!("{name}=true"))
        .collect();
    if !host.is_empty() {
        out.push(format!("host namespaces ({})", host.join(", ")));
    }
    if !restricted {
        let volumes: Vec<&str> = spec
            .get("volumes")
            .items()
            .filter(|volume| volume.get("hostPath").is_set())
            .map(|volume| volume.get("name").text())
            .collect();
        if !volumes.is_empty() {
            out.push(format!(
                "hostPath volumes ({})",
                counted("volume", &volumes)
            ));
        }
    }
    host_ports(spec, out);
    probe_hosts(spec, out);
    let privileged = those(spec, |one| context(one, "privileged").flag());
    if !privileged.is_empty() {
        out.push(format!(
            "privileged ({} must not set securityContext.privileged=true)",
            counted("container", &privileged)
        ));
    }
    if !restricted {
        unconfined(spec, out);
    }
    let sysctls: Vec<&str> = spec
        .dig(&["securityContext", "sysctls"])
        .items()
        .map(|sysctl| sysctl.get("name").text())
        .filter(|name| !SAFE_SYSCTLS.contains(name))
        .collect();
    if !sysctls.is_empty() {
        out.push(format!("forbidden sysctls ({})", sysctls.join(", ")));
    }
}

fn host_ports(spec: &At<'_>, out: &mut Vec<String>) {
    let used = |container: &At<'_>| -> Vec<i64> {
        let ports = container.get("ports").items();
        ports
            .map(|port| port.get("hostPort").number())
            .filter(|port| *port != 0)
            .collect()
    };
    let bad = those(spec, |one| !used(one).is_empty());
    if bad.is_empty() {
        return;
    }
    let ports: BTreeSet<String> = all_containers(spec)
        .flat_map(|one| used(&one))
        .map(|port| port.to_string())
        .collect();
    let verb = if bad.len() == 1 { "uses" } else { "use" };
    let noun = if ports.len() == 1 {
        "hostPort"
    } else {
        "hostPorts"
    };
    let ports: Vec<String> = ports.into_iter().collect();
    out.push(format!(
        "hostPort ({} {verb} {noun} {})",
        counted("container", &bad),
        ports.join(", ")
    ));
}

fn probe_hosts(spec: &At<'_>, out: &mut Vec<String>) {
    let hosts = |container: &At<'_>| -> Vec<String> {
        let handlers = [
            container.get("livenessProbe"),
            container.get("readinessProbe"),
            container.get("startupProbe"),
            container.dig(&["lifecycle", "postStart"]),
            container.dig(&["lifecycle", "preStop"]),
        ];
        let named = handlers.iter().flat_map(|handler| {
            ["httpGet", "tcpSocket"].map(|kind| handler.dig(&[kind, "host"]).text().to_owned())
        });
        named
            .filter(|host| !["", "127.0.0.1", "::1"].contains(&host.as_str()))
            .collect()
    };
    let bad = those(spec, |one| !hosts(one).is_empty());
    if bad.is_empty() {
        return;
    }
    let named: BTreeSet<String> = all_containers(spec).flat_map(|one| hosts(&one)).collect();
    let verb = if bad.len() == 1 { "uses" } else { "use" };
    let plural = if named.len() == 1 { "" } else { "s" };
    out.push(format!(
        "probe or lifecycle host ({} {verb} probe or lifecycle host{plural} {})",
        counted("container", &bad),
        quoted(named.iter().map(String::as_str))
    ));
}

/// Who asks for no seccomp profile at all: `pod and container "a"`.
fn unconfined(spec: &At<'_>, out: &mut Vec<String>) -> bool {
    let kind = |at: &At<'_>| at.get("type").text() == "Unconfined";
    let mut setters = Vec::new();
    if kind(&spec.dig(&["securityContext", "seccompProfile"])) {
        setters.push("pod".to_owned());
    }
    let bad = those(spec, |one| kind(&context(one, "seccompProfile")));
    if !bad.is_empty() {
        setters.push(counted("container", &bad));
    }
    if !setters.is_empty() {
        out.push(format!(
            "seccompProfile ({} must not set securityContext.seccompProfile.type to \"Unconfined\")",
            setters.join(" and ")
        ));
    }
    !setters.is_empty()
}

fn restricted(spec: &At<'_>, out: &mut Vec<String>) {
    let escalating = those(spec, |one| {
        let at = context(one, "allowPrivilegeEscalation");
        !at.is_set() || at.flag()
    });
    if !escalating.is_empty() {
        out.push(format!(
            "allowPrivilegeEscalation != false ({} must set securityContext.allowPrivilegeEscalation=false)",
            counted("container", &escalating)
        ));
    }
    let mut details = Vec::new();
    let keeping = those(spec, |one| {
        let dropped = one.dig(&["securityContext", "capabilities", "drop"]);
        !dropped.texts().any(|capability| capability == "ALL")
    });
    if !keeping.is_empty() {
        details.push(format!(
            "{} must set securityContext.capabilities.drop=[\"ALL\"]",
            counted("container", &keeping)
        ));
    }
    let extra = |capability: &&str| *capability != "NET_BIND_SERVICE";
    let adding = those(spec, |one| added_capabilities(one).iter().any(extra));
    if !adding.is_empty() {
        let added: BTreeSet<&str> = all_containers(spec)
            .flat_map(|one| added_capabilities(&one))
            .filter(extra)
            .collect();
        details.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            counted("container", &adding),
            quoted(added)
        ));
    }
    if !details.is_empty() {
        out.push(format!(
            "unrestricted capabilities ({})",
            details.join("; ")
        ));
    }
    restricted_volumes(spec, out);
    users(spec, out);
    if unconfined(spec, out) || spec.dig(&["securityContext", "seccompProfile"]).is_set() {
        return;
    }
    let silent = those(spec, |one| !context(one, "seccompProfile").is_set());
    if !silent.is_empty() {
        out.push(format!(
            "seccompProfile (pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
            counted("container", &silent)
        ));
    }
}

fn restricted_volumes(spec: &At<'_>, out: &mut Vec<String>) {
    let kind = |volume: &At<'_>| -> Option<String> {
        let fields = volume.value.as_object()?.keys();
        let mut sources = fields.filter(|name| *name != "name");
        sources
            .next()
            .filter(|name| !SAFE_VOLUMES.contains(&name.as_str()))
            .cloned()
    };
    let volumes: Vec<At<'_>> = spec
        .get("volumes")
        .items()
        .filter(|one| kind(one).is_some())
        .collect();
    if volumes.is_empty() {
        return;
    }
    let names: Vec<&str> = volumes
        .iter()
        .map(|volume| volume.get("name").text())
        .collect();
    let kinds: BTreeSet<String> = volumes.iter().filter_map(kind).collect();
    let verb = if names.len() == 1 { "uses" } else { "use" };
    let plural = if kinds.len() == 1 { "" } else { "s" };
    out.push(format!(
        "restricted volume types ({} {verb} restricted volume type{plural} {})",
        counted("volume", &names),
        quoted(kinds.iter().map(String::as_str))
    ));
}

/// Nobody runs as root, and everybody says so.
fn users(spec: &At<'_>, out: &mut Vec<String>) {
    let pod = spec.dig(&["securityContext", "runAsNonRoot"]);
    let no = |at: &At<'_>| at.is_set() && !at.flag();
    let mut setters = Vec::new();
    let own = those(spec, |one| no(&context(one, "runAsNonRoot")));
    if no(&pod) {
        setters.push("pod".to_owned());
    }
    if !own.is_empty() {
        setters.push(counted("container", &own));
    }
    let silent = those(spec, |one| !context(one, "runAsNonRoot").is_set());
    if !setters.is_empty() {
        out.push(format!(
            "runAsNonRoot != true ({} must not set securityContext.runAsNonRoot=false)",
            setters.join(" and ")
        ));
    } else if !pod.is_set() && !silent.is_empty() {
        out.push(format!(
            "runAsNonRoot != true (pod or {} must set securityContext.runAsNonRoot=true)",
            counted("container", &silent)
        ));
    }
    let root = |at: &At<'_>| at.int() == Some(0);
    let mut setters = Vec::new();
    if root(&spec.dig(&["securityContext", "runAsUser"])) {
        setters.push("pod".to_owned());
    }
    let own = those(spec, |one| root(&context(one, "runAsUser")));
    if !own.is_empty() {
        setters.push(counted("container", &own));
    }
    if !setters.is_empty() {
        out.push(format!(
            "runAsUser=0 ({} must not set runAsUser=0)",
            setters.join(" and ")
        ));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_levels_refuse_what_a_real_server_refuses() {
        let cases: Vec<Value> =
            serde_json::from_str(include_str!("../../../testdata/kinds/levels.json")).unwrap();
        for case in cases {
            let level = case["level"].as_str().unwrap();
            let found = violations(&At::root(&case["spec"]), level);
            let answer = if found.is_empty() {
                String::new()
            } else {
                format!("PodSecurity \"{level}:latest\": {}", found.join(", "))
            };
            assert_eq!(answer, case["answer"].as_str().unwrap());
        }
    }
}
