//! What to do about an error of the API server, or on the way to it.

use std::error::Error;
use std::io;

/// The error with all its causes, and advice where there is any.
pub fn explain(error: &kube::Error) -> String {
    let mut text = match error {
        kube::Error::Api(status) => status.message.clone(),
        _ => chain(error),
    };
    if let Some(advice) = advice(error) {
        text.push_str("; ");
        text.push_str(advice);
    }
    text
}

/// Each cause once: many errors tell their cause's text as well.
fn chain(error: &dyn Error) -> String {
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

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

fn advice(error: &kube::Error) -> Option<&'static str> {
    if let kube::Error::Api(status) = error {
        return match status.code {
            401 => Some(
                "the API server does not know these credentials: has the token or certificate expired?",
            ),
            403 => Some("grant it by RBAC to the user named here"),
            404 if status.details.is_none() => Some(
                "the API server does not serve this kind: is its CustomResourceDefinition installed?",
            ),
            429 => Some("the API server is overloaded; it is asked again later"),
            _ => None,
        };
    }
    for cause in causes(error) {
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            match error.kind() {
                io::ErrorKind::ConnectionRefused => {
                    return Some("is the API server running, and is its address right?");
                }
                io::ErrorKind::TimedOut => {
                    return Some("does a firewall or network policy keep it from us?");
                }
                _ => {}
            }
            // TLS errors travel inside of these, where `source` does not show them.
            let inner = error.get_ref().and_then(|e| e.downcast_ref());
            if let Some(advice) = inner.and_then(tls_advice) {
                return Some(advice);
            }
        }
        if let Some(advice) = cause.downcast_ref().and_then(tls_advice) {
            return Some(advice);
        }
        if cause.is::<tokio::time::error::Elapsed>() {
            return Some("the API server did not answer in time");
        }
        if cause.to_string().contains("dns error") {
            return Some(
                "the API server's name is unknown here: check the address and the name server",
            );
        }
    }
    None
}

fn tls_advice(error: &rustls::Error) -> Option<&'static str> {
    use rustls::CertificateError as Why;
    match error {
        rustls::Error::InvalidCertificate(why) => match why {
            // Authorities of different clusters may well have the same name.
            Why::UnknownIssuer | Why::BadSignature => Some(
                "the API server's certificate is not of the authority in the kubeconfig: is this the right cluster?",
            ),
            Why::NotValidForName | Why::NotValidForNameContext { .. } => Some(
                "the API server's certificate is for another name: use one it is for, or set tls-server-name",
            ),
            Why::Expired | Why::ExpiredContext { .. } => {
                Some("the API server's certificate has expired, or this machine's clock is wrong")
            }
            Why::NotValidYet | Why::NotValidYetContext { .. } => Some(
                "the API server's certificate is not valid yet: is this machine's clock right?",
            ),
            _ => None,
        },
        _ => None,
    }
}
