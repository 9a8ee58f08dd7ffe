//! Security contexts of pods and containers.

use super::containers::Scope;
use super::volumes::relative;
use crate::kinds::at::{At, Errors};
use crate::kinds::diff;
use crate::kinds::names;
use crate::kinds::shown;
use crate::met::Met;

const MAX_ID: i64 = i32::MAX as i64;
const PROFILE_TYPES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];
const NOT_ON_WINDOWS: &str = "cannot be set for a windows pod";

/// Privileged containers are refused, as by a server that was started without `--allow-privileged`.
pub fn container(context: &At<'_>, scope: &Scope<'_>, errors: &mut Errors) {
    if !context.is_set() {
        return;
    }
    let privileged = context.get("privileged").flag();
    if privileged {
        errors.forbidden(&context.get("privileged"), "disallowed by cluster policy");
    }
    for id in ["runAsUser", "runAsGroup"] {
        errors.between(&context.get(id), 0, MAX_ID);
    }
    let mount = context.get("procMount");
    errors.optional_choice(&mount, &["Default", "Unmasked"]);
    if scope.host_users && mount.text() == "Unmasked" {
        errors.invalid(
            &mount,
            mount.text(),
            "`hostUsers` must be false to use `Unmasked`",
        );
    }
    seccomp(&context.get("seccompProfile"), errors);
    let escalation = context.get("allowPrivilegeEscalation");
    if escalation.is_set() && !escalation.flag() {
        if privileged {
            errors.invalid_shown(
                context,
                &diff::compact("SecurityContext", context.value),
                "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            );
        }
        let admin = context
            .dig(&["capabilities", "add"])
            .texts()
            .any(|capability| capability == "CAP_SYS_ADMIN");
        if admin {
            errors.invalid_shown(
                context,
                &diff::compact("SecurityContext", context.value),
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            );
        }
    }
    windows_options(&context.get("windowsOptions"), errors);
    app_armor(&context.get("appArmorProfile"), errors);
}

pub fn pod(spec: &At<'_>, errors: &mut Errors) {
    let context = spec.get("securityContext");
    for id in ["fsGroup", "runAsUser", "runAsGroup"] {
        errors.between(&context.get(id), 0, MAX_ID);
    }
    for group in context.get("supplementalGroups").items() {
        errors.between(&group, 0, MAX_ID);
    }
    if spec.get("shareProcessNamespace").flag() && spec.get("hostPID").flag() {
        errors.invalid(
            &context.get("shareProcessNamespace"),
            true,
            "ShareProcessNamespace and HostPID cannot both be enabled",
        );
    }
    sysctls(&context.get("sysctls"), spec, errors);
    errors.optional_choice(
        &context.get("fsGroupChangePolicy"),
        &["Always", "OnRootMismatch"],
    );
    seccomp(&context.get("seccompProfile"), errors);
    windows_options(&context.get("windowsOptions"), errors);
    app_armor(&context.get("appArmorProfile"), errors);
    errors.optional_choice(
        &context.get("supplementalGroupsPolicy"),
        &["Merge", "Strict"],
    );
    errors.optional_choice(&context.get("seLinuxChangePolicy"), &["Recursive"]);
}

fn sysctls(list: &At<'_>, spec: &At<'_>, errors: &mut Errors) {
    let mut seen = Met::default();
    for sysctl in list.items() {
        let name = sysctl.get("name");
        if name.is_empty() {
            errors.required(&name, "");
        } else if !is_sysctl(name.text()) {
            errors.invalid(
                &name,
                name.text(),
                "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
            );
        } else if seen.contains(&name.text()) {
            errors.duplicate(&name, name.text());
        }
        let dotted = name.text().replace('/', ".");
        let shared = ["kernel.shm", "kernel.msg", "fs.mqueue."];
        let in_ipc = dotted == "kernel.sem" || shared.iter().any(|head| dotted.starts_with(head));
        if spec.get("hostNetwork").flag() && dotted.starts_with("net.") {
            errors.invalid(
                &name,
                name.text(),
                "may not be specified when 'hostNetwork' is true",
            );
        } else if spec.get("hostIPC").flag() && in_ipc {
            errors.invalid(
                &name,
                name.text(),
                "may not be specified when 'hostIPC' is true",
            );
        }
        seen.push(name.text());
    }
}

fn is_sysctl(name: &str) -> bool {
    let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= 253
        && name.split(['.', '/']).all(|part| {
            part.bytes().next().is_some_and(edge)
                && part.bytes().last().is_some_and(edge)
                && part
                    .bytes()
                    .all(|byte| edge(byte) || byte == b'-' || byte == b'_')
        })
}

fn seccomp(profile: &At<'_>, errors: &mut Errors) {
    if !profile.is_set() {
        return;
    }
    let kind = profile.get("type");
    if kind.is_empty() {
        errors.required(&kind, "type is required when seccompProfile is set");
    } else {
        errors.optional_choice(&kind, PROFILE_TYPES);
    }
    let local = profile.get("localhostProfile");
    if kind.text() == "Localhost" {
        if local.is_set() {
            relative(&local, errors);
        } else {
            errors.required(&local, "must be set when seccomp type is Localhost");
        }
    } else if local.is_set() {
        let shown = shown::fields(&[("Type", kind.value), ("LocalhostProfile", local.value)]);
        errors.invalid_shown(
            &local,
            &shown,
            "can only be set when seccomp type is Localhost",
        );
    }
}

/// On Windows, a pod's containers run as processes of the host all together or not at all.
pub fn host_processes(spec: &At<'_>, errors: &mut Errors) {
    const OPTION: &[&str] = &["securityContext", "windowsOptions", "hostProcess"];
    let of_pod = spec.dig(OPTION);
    let (mut all, mut on_host) = (0, 0);
    for container in super::all_containers(spec) {
        let own = container.dig(OPTION);
        if of_pod.is_set() && own.is_set() && of_pod.flag() != own.flag() {
            let detail = format!(
                "pod hostProcess value must be identical if both are specified, was {}",
                of_pod.flag()
            );
            errors.invalid(&own, own.flag(), detail);
        }
        all += 1;
        let decides = if own.is_set() { &own } else { &of_pod };
        on_host += usize::from(decides.flag());
    }
    if on_host == 0 {
        return;
    }
    if on_host != all {
        errors.invalid(spec, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers");
    }
    if !spec.get("hostNetwork").flag() {
        errors.invalid(
            &spec.get("hostNetwork"),
            false,
            "hostNetwork must be true if pod contains any hostProcess containers",
        );
    }
    errors.forbidden(
        spec,
        "hostProcess containers are disallowed by cluster policy",
    );
}

fn app_armor(profile: &At<'_>, errors: &mut Errors) {
    if !profile.is_set() {
        return;
    }
    let (kind, local) = (profile.get("type"), profile.get("localhostProfile"));
    const WANTED: &str = "must be set when AppArmor type is Localhost";
    match kind.text() {
        "Localhost" => {
            let text = local.text();
            if !local.is_set() {
                errors.required(&local, WANTED);
            } else if text.trim() != text {
                errors.invalid(&local, text, "must not be padded with whitespace");
            } else if text.is_empty() {
                errors.required(&local, WANTED);
            }
            if text.len() > 4095 {
                errors.too_long(&local, 4095);
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if local.is_set() {
                errors.invalid(
                    &local,
                    local.text(),
                    "can only be set when AppArmor type is Localhost",
                );
            }
        }
        "" => errors.required(&kind, "type is required when appArmorProfile is set"),
        _ => errors.not_supported(&kind, PROFILE_TYPES),
    }
}

fn windows_options(options: &At<'_>, errors: &mut Errors) {
    let spec_name = options.get("gmsaCredentialSpecName");
    if spec_name.is_set() {
        errors.format(&spec_name, names::subdomain);
    }
    let credentials = options.get("gmsaCredentialSpec");
    if credentials.is_set() {
        if credentials.is_empty() {
            errors.invalid(
                &credentials,
                "",
                "gmsaCredentialSpec cannot be an empty string",
            );
        } else if credentials.len() > 64 * 1024 {
            errors.invalid(
                &credentials,
                credentials.text(),
                "gmsaCredentialSpec size must be under 64 KiB",
            );
        }
    }
    let user = options.get("runAsUserName");
    if user.is_set() && user.is_empty() {
        errors.invalid(&user, "", "runAsUserName cannot be an empty string");
    } else if user.text().chars().any(char::is_control) {
        errors.invalid(
            &user,
            user.text(),
            "runAsUserName cannot contain control characters",
        );
    } else if user.text().matches('\\').count() > 1 {
        errors.invalid(
            &user,
            user.text(),
            "runAsUserName cannot contain more than one backslash",
        );
    } else if user.is_set() {
        windows_user(&user, errors);
    }
}

/// A user of Windows, with an optional domain in front.
fn windows_user(at: &At<'_>, errors: &mut Errors) {
    let (domain, user) = match at.text().split_once('\\') {
        Some((domain, user)) => (Some(domain), user),
        None => (None, at.text()),
    };
    let mut complain =
        |what: &str| errors.invalid(at, at.text(), format!("runAsUserName's {what}"));
    if domain.is_some_and(|domain| domain.len() >= 256) {
        complain("Domain length must be under 256 characters");
    }
    if domain.is_some_and(|domain| !is_net_bios(domain) && !names::subdomain(domain).is_empty()) {
        complain("Domain doesn't match the NetBios nor the DNS format");
    }
    if user.is_empty() {
        complain("User cannot be empty");
    } else if user.len() > 104 {
        complain("User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.chars().all(|letter| matches!(letter, '.' | ' ')) {
        complain("User cannot contain only periods or spaces");
    }
    if user.contains(|letter| "\"/\\:;|=,+*?<>@[]".contains(letter)) {
        complain("User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
}

fn is_net_bios(name: &str) -> bool {
    let count = name.chars().count();
    (1..=15).contains(&count)
        && !name.starts_with('.')
        && !name.contains(|letter| "\\/:*?\"<>|".contains(letter))
}

/// What does not go together with the operating system that the pod names.
pub fn operating_system(spec: &At<'_>, errors: &mut Errors) {
    let os = spec.get("os");
    if !os.is_set() {
        return;
    }
    let name = os.get("name");
    let context = spec.get("securityContext");
    let containers = ["initContainers", "containers", "ephemeralContainers"];
    let contexts = containers
        .iter()
        .flat_map(|list| spec.get(list).items())
        .map(|container| container.get("securityContext"));
    let mut forbid = |at: At<'_>, detail: &str| {
        if at.is_set() && at.value != false {
            errors.forbidden(&at, detail);
        }
    };
    match name.text() {
        "" => errors.required(&name, ""),
        "linux" => {
            for context in std::iter::once(context).chain(contexts) {
                forbid(
                    context.get("windowsOptions"),
                    "windows options cannot be set for a linux pod",
                );
            }
        }
        "windows" => {
            for (in_context, field) in WINDOWS_POD {
                let at = if *in_context {
                    context.get(field)
                } else {
                    spec.get(field)
                };
                forbid(at, NOT_ON_WINDOWS);
            }
            for context in contexts {
                for field in WINDOWS_CONTAINER {
                    let at = context.get(field);
                    if at.is_set() {
                        errors.forbidden(&at, NOT_ON_WINDOWS);
                    }
                }
            }
        }
        other => errors.push(crate::field::FieldError::not_supported(
            &os.path(),
            other,
            &["linux", "windows"],
        )),
    }
}

/// Fields that Windows pods may not have; whether they are in the security context.
const WINDOWS_POD: &[(bool, &str)] = &[
    (true, "appArmorProfile"),
    (true, "seLinuxOptions"),
    (false, "hostUsers"),
    (false, "hostPID"),
    (false, "hostIPC"),
    (true, "seccompProfile"),
    (true, "fsGroup"),
    (true, "fsGroupChangePolicy"),
    (true, "sysctls"),
    (false, "shareProcessNamespace"),
    (true, "runAsUser"),
    (true, "runAsGroup"),
    (true, "supplementalGroups"),
    (true, "supplementalGroupsPolicy"),
    (true, "seLinuxChangePolicy"),
];

const WINDOWS_CONTAINER: &[&str] = &[
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];
