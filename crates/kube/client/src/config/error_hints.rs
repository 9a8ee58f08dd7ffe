//! Errors of the API server, and on the way to it, as one sentence: which server and credentials, what failed, what
//! to do.

use std::error::Error;
use std::io;
use std::sync::Arc;

use kube::core::Status;
use rustls::CertificateError as Bad;

use super::factory::Unreached;

/// What happened, with the address or the permission it is about; then what to do, where somebody can do something.
pub fn explain(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => refusal(status),
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) | kube::Error::InferKubeconfig(_) => {
            let error = chain(error);
            format!(
                "the answer makes no sense ({error}); is this the address of an API server, and of a version that is supported?"
            )
        }
        _ => on_the_way(error),
    }
}

/// An error with its causes, each once: many errors tell their cause's text as well.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

/// The API server said no, in words that name the user, the permission or the object.
fn refusal(status: &Status) -> String {
    let message = match status.message.trim() {
        "" => format!("the API server answered {} {}", status.code, status.reason),
        message => message.to_owned(),
    };
    match advice(status) {
        Some(advice) => format!("{}; {advice}", message.trim_end_matches('.')),
        None => message,
    }
}

fn advice(status: &Status) -> Option<&'static str> {
    let says = |words: &[&str]| words.iter().any(|word| status.message.contains(word));
    // Whatever code that is answered with.
    if matches!(status.code, 403 | 405 | 409) && says(&["terminating", "being terminated"]) {
        return Some("it is being deleted: it is tried again, and works when it is there anew");
    }
    Some(match status.code {
        400 if says(&["HTTP request to an HTTPS server"]) => "write https:// in the address",
        401 => "has the token or certificate expired, or is it of another cluster? give a new one",
        403 if says(&["cannot "]) => "grant it by RBAC to the user named here",
        403 if says(&["exceeded quota"]) => "raise the quota, or delete something",
        403 => "a policy of the cluster forbids it: ask whoever runs the cluster",
        404 => return missing(status),
        410 => "everything is read anew",
        413 | 422 => {
            "is the cluster, or its CustomResourceDefinition, of another version than this program?"
        }
        429 => "the API server is overloaded; it is asked again later",
        502..=504 => {
            "the API server, or something in front of it, is not ready; it is asked again later"
        }
        500 | 507 => "look into the API server's log; it is asked again later",
        _ => return None,
    })
}

fn missing(status: &Status) -> Option<&'static str> {
    let kind = status.details.as_ref().map(|details| details.kind.as_str());
    match kind {
        None => Some(
            "the API server does not serve this kind: is its CustomResourceDefinition installed?",
        ),
        Some("namespaces") => Some("create the namespace, or name another one"),
        Some("nodes") => Some("is the name right, and has the node registered?"),
        Some(_) => None,
    }
}

/// The same for an error on the way to somebody else: a kubelet, say, and where.
pub fn explain_way_to(who: &str, error: &kube::Error) -> String {
    match trouble_on_the_way(error) {
        (_, Some((what, advice))) => format!("{who} {what}; {advice}"),
        (_, None) => format!("{who} cannot be asked: {}", chain(error)),
    }
}

fn on_the_way(error: &(dyn Error + 'static)) -> String {
    let (address, trouble) = trouble_on_the_way(error);
    let who = match address {
        Some(address) => format!("the API server at {address}"),
        None => "the API server".to_owned(),
    };
    match trouble {
        Some((what, advice)) => format!("{who} {what}; {advice}"),
        None => format!("{who} cannot be asked: {}", chain(error)),
    }
}

/// Where it was on the way to, if it says so, and what was in the way.
fn trouble_on_the_way(error: &(dyn Error + 'static)) -> (Option<Arc<str>>, Option<Trouble>) {
    let mut address = None;
    let mut trouble = None;
    each_cause(error, &mut |cause| {
        if let Some(unreached) = cause.downcast_ref::<Unreached>() {
            address = Some(unreached.address.clone());
        }
        trouble = trouble.or_else(|| trouble_of(cause));
    });
    (address, trouble)
}

/// The error and its causes, the outermost first.
fn each_cause(error: &(dyn Error + 'static), look: &mut dyn FnMut(&(dyn Error + 'static))) {
    look(error);
    // What is inside of these is not their source, but its source is.
    let inside = error.downcast_ref::<io::Error>();
    if let Some(inside) = inside.and_then(io::Error::get_ref) {
        each_cause(inside, look);
    } else if let Some(cause) = error.source() {
        each_cause(cause, look);
    }
}

type Trouble = (&'static str, &'static str);

fn trouble_of(error: &(dyn Error + 'static)) -> Option<Trouble> {
    if let Some(error) = error.downcast_ref() {
        return of_tls(error);
    }
    if error.is::<tokio::time::error::Elapsed>() {
        return Some(SILENT);
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return of_io(error.kind());
    }
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        let broke = error.is_incomplete_message() || error.is_closed() || error.is_canceled();
        return broke.then_some(BROKE);
    }
    error
        .to_string()
        .contains("failed to lookup address")
        .then_some((
            "has a name that is unknown here",
            "check the address and the name server",
        ))
}

const SILENT: Trouble = (
    "does not answer in time",
    "is it overloaded or stopped, or does a firewall or network policy keep it from us?",
);
const BROKE: Trouble = (
    "broke the connection",
    "was it restarted? it is asked again",
);

fn of_io(kind: io::ErrorKind) -> Option<Trouble> {
    use io::ErrorKind as Kind;
    Some(match kind {
        Kind::ConnectionRefused => (
            "refuses connections",
            "is it running, and is this its address?",
        ),
        Kind::TimedOut => SILENT,
        Kind::ConnectionReset
        | Kind::ConnectionAborted
        | Kind::BrokenPipe
        | Kind::UnexpectedEof => BROKE,
        Kind::HostUnreachable | Kind::NetworkUnreachable => (
            "cannot be reached from here",
            "check the address and the network",
        ),
        _ => return None,
    })
}

fn of_tls(error: &rustls::Error) -> Option<Trouble> {
    Some(match error {
        rustls::Error::InvalidCertificate(why) => match why {
            // Authorities of different clusters may well have the same name.
            Bad::UnknownIssuer | Bad::BadSignature => (
                "has a certificate that is not of the authority in the kubeconfig",
                "is this the right cluster?",
            ),
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => (
                "has a certificate for another name",
                "use a name it is for, or set tls-server-name",
            ),
            Bad::Expired | Bad::ExpiredContext { .. } => (
                "has a certificate that has expired",
                "renew it, unless this machine's clock is wrong",
            ),
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => (
                "has a certificate that is not valid yet",
                "is this machine's clock right?",
            ),
            _ => (
                "has a certificate that cannot be used",
                "let the cluster's authority sign a new one",
            ),
        },
        rustls::Error::InvalidMessage(_) => (
            "speaks no TLS",
            "is this its address and port, and should it be http:// there?",
        ),
        rustls::Error::AlertReceived(_) => (
            "does not accept the client certificate or the way TLS is spoken",
            "has the client certificate expired, or is it of another cluster?",
        ),
        _ => return None,
    })
}
