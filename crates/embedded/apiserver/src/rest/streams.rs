//! Logs, commands, forwarded ports and proxies: doors to pods and nodes. This server reaches neither, but says of each
//! request what can be said without.

use bytes::Bytes;
use http::{StatusCode, header};
use serde_json::Value;

use super::{Call, meta};
use crate::answer::{Answer, full};
use crate::field::{FieldError, Path};
use crate::kinds::Lookup;
use crate::status::{StatusError, Subject};

pub fn handle(call: &Call<'_>) -> Result<Answer, StatusError> {
    match (call.served.shelf.as_ref(), call.path.subresource.as_str()) {
        ("pods", "log") => log(call),
        ("pods", "exec" | "attach" | "portforward") if is_websocket(call) && !may_create(call) => {
            let subject = call.served.resource.as_subject();
            Err(StatusError::forbidden(subject, &call.path.name, ""))
        }
        ("pods", "portforward") => {
            let pod = call.pod(&call.path.name)?;
            Err(hosted(call, &pod)?)
        }
        ("pods", "proxy") => pod_proxy(call),
        ("pods", _) => {
            let pod = call.pod(&call.path.name)?;
            container(call, &pod)?;
            Err(hosted(call, &pod)?)
        }
        ("services", _) => service_proxy(call),
        _ => {
            let (name, _) = name_and_port(call, "node")?;
            Err(unreachable(call, &name)?)
        }
    }
}

/// A browser's way to open a stream is a GET, though it does what is else done by POST.
fn is_websocket(call: &Call<'_>) -> bool {
    let has = |name, wanted: &str| {
        let values = call.headers.get_all(name).iter();
        let values = values.filter_map(|value| value.to_str().ok());
        values
            .flat_map(|value| value.split(','))
            .any(|value| value.trim().eq_ignore_ascii_case(wanted))
    };
    has(header::CONNECTION, "upgrade") && has(header::UPGRADE, "websocket")
}

fn may_create(call: &Call<'_>) -> bool {
    let authority = call.server.authority();
    authority
        .authorize_also(call.user, call.info, "create")
        .is_ok()
}

impl Call<'_> {
    fn pod(&self, name: &str) -> Result<Value, StatusError> {
        self.server
            .get("pods", &self.path.namespace, name)
            .ok_or_else(|| StatusError::not_found(self.served.resource.as_subject(), name))
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.query.get(name).and_then(|text| text.parse().ok())
    }
}

fn log(call: &Call<'_>) -> Result<Answer, StatusError> {
    let mut errors = Vec::new();
    let mut at_least = |name: &str, least: i64, detail: &str| {
        if let Some(number) = call.number(name).filter(|number| *number < least) {
            errors.push(FieldError::invalid(&Path::new(name), number, detail));
        }
    };
    at_least("tailLines", 0, "must be greater than or equal to 0");
    at_least("limitBytes", 1, "must be greater than 0");
    if call.query.get("sinceTime").is_none() {
        at_least("sinceSeconds", 1, "must be greater than 0");
    } else if call.number("sinceSeconds").is_some() {
        errors.push(FieldError::forbidden(
            &Path::root().key(""),
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        ));
    }
    if call.query.all("stream").next().is_some() {
        // A feature that is off.
        let detail = "may not be specified";
        errors.push(FieldError::forbidden(&Path::new("stream"), detail));
    }
    if !errors.is_empty() {
        let subject = Subject {
            group: "",
            kind: "PodLogOptions",
        };
        return Err(StatusError::invalid(subject, &call.path.name, &errors));
    }
    let pod = call.pod(&call.path.name)?;
    container(call, &pod)?;
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if node.is_empty() {
        // It has not run yet, so there is nothing to read.
        let mut nothing = Answer::new(full(Bytes::new()));
        *nothing.status_mut() = StatusCode::NO_CONTENT;
        return Ok(nothing);
    }
    Err(unreachable(call, node)?)
}

/// That the container is named, if there are several, and one of the pod's.
fn container(call: &Call<'_>, pod: &Value) -> Result<(), StatusError> {
    let names = |lists: &[&str]| -> Vec<String> {
        let containers = lists.iter().flat_map(|list| pod["spec"][list].as_array());
        let names = containers.flatten().filter_map(|one| one["name"].as_str());
        names.map(str::to_owned).collect()
    };
    let all = names(&["initContainers", "containers", "ephemeralContainers"]);
    let pod = meta(pod, "name");
    match call.query.get("container").unwrap_or_default() {
        "" if names(&["containers"]).len() > 1 => Err(StatusError::bad_request(format!(
            "a container name must be specified for pod {pod}, choose one of: [{}]",
            all.join(" ")
        ))),
        name if !name.is_empty() && !all.iter().any(|one| one == name) => Err(
            StatusError::bad_request(format!("container {name} is not valid for pod {pod}")),
        ),
        _ => Ok(()),
    }
}

/// What to say of a pod that would have to be asked on its node.
fn hosted(call: &Call<'_>, pod: &Value) -> Result<StatusError, StatusError> {
    match pod["spec"]["nodeName"].as_str().unwrap_or_default() {
        "" => Ok(StatusError::bad_request(format!(
            "pod {} does not have a host assigned",
            meta(pod, "name")
        ))),
        node => unreachable(call, node),
    }
}

fn unreachable(call: &Call<'_>, node: &str) -> Result<StatusError, StatusError> {
    // The original names the resource that was asked for, even where it is a pod's node that is missing.
    let subject = call.served.resource.as_subject();
    let found = call.server.get("nodes", "", node);
    let found = found.ok_or_else(|| StatusError::not_found(subject, node))?;
    let has_address = found["status"]["addresses"]
        .as_array()
        .is_some_and(|addresses| !addresses.is_empty());
    Ok(if has_address {
        unavailable(format!(
            "the embedded API server does not connect to kubelets: {node}"
        ))
    } else {
        StatusError::server_error("no preferred addresses found; known addresses: []")
    })
}

fn unavailable(message: String) -> StatusError {
    StatusError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "ServiceUnavailable",
        message,
    )
}

/// `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`.
fn name_and_port(call: &Call<'_>, kind: &str) -> Result<(String, String), StatusError> {
    let parts: Vec<&str> = call.path.name.split(':').collect();
    match parts.as_slice() {
        [name] => Ok(((*name).to_owned(), String::new())),
        [name, port] | ["http" | "https" | "", name, port] => {
            Ok(((*name).to_owned(), (*port).to_owned()))
        }
        _ => Err(StatusError::bad_request(format!(
            "invalid {kind} request {}",
            plimsoll_golang::strconv::quote(&call.path.name)
        ))),
    }
}

fn pod_proxy(call: &Call<'_>) -> Result<Answer, StatusError> {
    let (name, _) = name_and_port(call, "pod")?;
    let pod = call.pod(&name)?;
    match pod["status"]["podIP"].as_str() {
        None | Some("") => Err(StatusError::bad_request("address not allowed")),
        Some(address) => Err(unavailable(format!(
            "the embedded API server does not connect to pods: {address}"
        ))),
    }
}

fn service_proxy(call: &Call<'_>) -> Result<Answer, StatusError> {
    let (name, port) = name_and_port(call, "service")?;
    let quoted = plimsoll_golang::strconv::quote(&name);
    if let Ok(number) = port.parse::<i64>() {
        let subject = call.served.resource.as_subject();
        let service = call.server.get("services", &call.path.namespace, &name);
        let service = service.ok_or_else(|| StatusError::not_found(subject, &name))?;
        let ports = service["spec"]["ports"].as_array().into_iter().flatten();
        if !ports.map(|port| &port["port"]).any(|port| *port == number) {
            return Err(unavailable(format!(
                "no service port {number} found for service {quoted}"
            )));
        }
    }
    let subject = call.served.resource.as_subject();
    let endpoints = call.server.get("endpoints", &call.path.namespace, &name);
    let endpoints = endpoints.ok_or_else(|| StatusError::not_found(subject, &name))?;
    let is_empty = endpoints["subsets"].as_array().is_none_or(Vec::is_empty);
    Err(unavailable(if is_empty {
        format!("no endpoints available for service {quoted}")
    } else {
        format!("the embedded API server does not connect to pods: service {quoted}")
    }))
}
