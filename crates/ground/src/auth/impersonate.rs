//! Acting as somebody else, for those who may.

use http::HeaderMap;
use http::header::HeaderName;
use k8s_openapi::api::authorization::v1::ResourceAttributes;

use super::user::{ANONYMOUS, UNAUTHENTICATED, UserInfo};
use crate::percent::decoded;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// Whom a request wants to act as.
#[derive(Debug, Clone, PartialEq)]
pub struct Impersonation {
    pub user: UserInfo,
    /// Everything that the one who asks must be allowed to impersonate.
    pub needs: Vec<ResourceAttributes>,
}

/// One thing to be impersonated, as the message about it shows it.
struct Part {
    kind: &'static str,
    namespace: String,
    name: String,
    api_version: &'static str,
    field_path: String,
}

impl Part {
    fn new(kind: &'static str, name: &str) -> Self {
        Self {
            kind,
            namespace: String::new(),
            name: name.to_owned(),
            api_version: "",
            field_path: String::new(),
        }
    }

    fn shown(&self) -> String {
        let Self {
            kind,
            namespace,
            name,
            api_version,
            field_path,
        } = self;
        format!("{{{kind} {namespace} {name}  {api_version}  {field_path}}}")
    }
}

impl Impersonation {
    /// What the headers ask for; `None` where they do not. The error is a message for a bad request.
    pub fn wanted(headers: &HeaderMap) -> Result<Option<Self>, String> {
        let texts = |name: &str| {
            let values = headers.get_all(name).iter();
            let values = values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
            values.collect::<Vec<_>>()
        };
        let first = |name: &str| texts(name).into_iter().next().filter(|v| !v.is_empty());
        let user = first(USER);
        let mut parts = Vec::new();
        for group in texts(GROUP) {
            parts.push(Part::new("Group", &group));
        }
        for (name, value) in headers {
            if let Some(key) = name.as_str().strip_prefix(EXTRA) {
                let value = String::from_utf8_lossy(value.as_bytes());
                parts.push(Part {
                    api_version: "authentication.k8s.io/v1",
                    field_path: decoded(key, false).unwrap_or_else(|| key.to_owned()),
                    ..Part::new("UserExtra", &value)
                });
            }
        }
        if let Some(uid) = first(UID) {
            parts.push(Part {
                api_version: "authentication.k8s.io/v1",
                ..Part::new("UID", &uid)
            });
        }
        let Some(user) = user else {
            if parts.is_empty() {
                return Ok(None);
            }
            let shown: Vec<String> = parts.iter().map(Part::shown).collect();
            let shown = shown.join(" ");
            return Err(format!("requested [{shown}] without impersonating a user"));
        };
        let whom = match service_account(&user) {
            Some((namespace, name)) => Part {
                namespace: namespace.to_owned(),
                ..Part::new("ServiceAccount", name)
            },
            None => Part::new("User", &user),
        };
        parts.insert(0, whom);
        Ok(Some(Self::of(user, &parts)))
    }

    fn of(name: String, parts: &[Part]) -> Self {
        let mut user = UserInfo {
            name,
            ..UserInfo::default()
        };
        for part in parts {
            let value = part.name.clone();
            match part.kind {
                "Group" => user.groups.push(value),
                "UID" => user.uid = value,
                "UserExtra" => {
                    let values = user.extra.entry(part.field_path.clone()).or_default();
                    values.push(value);
                }
                _ => {}
            }
        }
        if user.groups.is_empty()
            && let Some((namespace, _)) = service_account(&user.name)
        {
            user.groups = vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ];
        }
        let mut user = user.authenticated();
        if user.name == ANONYMOUS && !user.in_group(UNAUTHENTICATED) {
            user.groups.push(UNAUTHENTICATED.to_owned());
        }
        Self {
            user,
            needs: parts.iter().map(need).collect(),
        }
    }

    /// Takes the headers away: whoever is behind us must not act on them again.
    pub fn strip(headers: &mut HeaderMap) {
        let ours = |name: &&HeaderName| {
            let name = name.as_str();
            matches!(name, USER | GROUP | UID) || name.starts_with(EXTRA)
        };
        let names: Vec<HeaderName> = headers.keys().filter(ours).cloned().collect();
        for name in names {
            headers.remove(name);
        }
    }
}

/// Namespace and name of `system:serviceaccount:NAMESPACE:NAME`.
fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    let whole = !namespace.is_empty() && !name.is_empty() && !name.contains(':');
    whole.then_some((namespace, name))
}

fn need(part: &Part) -> ResourceAttributes {
    let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let (group, version, resource) = match part.kind {
        "ServiceAccount" => ("", "", "serviceaccounts"),
        "Group" => ("", "", "groups"),
        "UserExtra" => (AUTHENTICATION, "v1", "userextras"),
        "UID" => (AUTHENTICATION, "v1", "uids"),
        _ => ("", "", "users"),
    };
    ResourceAttributes {
        verb: Some("impersonate".to_owned()),
        group: filled(group),
        version: filled(version),
        resource: Some(resource.to_owned()),
        subresource: filled(&part.field_path),
        namespace: filled(&part.namespace),
        name: filled(&part.name),
        ..ResourceAttributes::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    fn wanted(pairs: &[(&str, &str)]) -> Impersonation {
        Impersonation::wanted(&headers(pairs)).unwrap().unwrap()
    }

    #[test]
    fn a_person() {
        let wanted = wanted(&[
            ("Impersonate-User", "jane"),
            ("Impersonate-Group", "devs"),
            ("Impersonate-Group", "ops"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Extra-Acme%2Fscopes", "view"),
        ]);
        assert_eq!(wanted.user.groups, ["devs", "ops", "system:authenticated"]);
        assert_eq!(wanted.user.uid, "7");
        assert_eq!(wanted.user.extra["acme/scopes"], ["view"]);
        let needs: Vec<String> = wanted
            .needs
            .iter()
            .map(|need| {
                let of = |text: &Option<String>| text.clone().unwrap_or_default();
                let (resource, sub) = (of(&need.resource), of(&need.subresource));
                format!("{} {resource} {sub} {}", of(&need.group), of(&need.name))
            })
            .collect();
        let expect = [
            " users  jane",
            " groups  devs",
            " groups  ops",
            "authentication.k8s.io userextras acme/scopes view",
            "authentication.k8s.io uids  7",
        ];
        assert_eq!(needs, expect);
    }

    #[test]
    fn a_service_account_and_nobody() {
        let account = wanted(&[("Impersonate-User", "system:serviceaccount:ns:robot")]);
        assert_eq!(
            account.needs[0].resource.as_deref(),
            Some("serviceaccounts")
        );
        assert_eq!(account.needs[0].namespace.as_deref(), Some("ns"));
        assert_eq!(
            account.user.groups,
            [
                "system:serviceaccounts",
                "system:serviceaccounts:ns",
                "system:authenticated"
            ]
        );
        let nobody = wanted(&[("Impersonate-User", "system:anonymous")]);
        assert_eq!(nobody.user.groups, ["system:unauthenticated"]);
        let odd = wanted(&[("Impersonate-User", "system:serviceaccount:ns")]);
        assert_eq!(odd.needs[0].resource.as_deref(), Some("users"));
    }

    #[test]
    fn nobody_in_particular() {
        assert_eq!(Impersonation::wanted(&headers(&[])), Ok(None));
        let error = Impersonation::wanted(&headers(&[("Impersonate-Group", "devs")]));
        assert_eq!(
            error.unwrap_err(),
            "requested [{Group  devs    }] without impersonating a user"
        );
    }

    #[test]
    fn nothing_is_left_of_it() {
        let mut headers = headers(&[
            ("Impersonate-User", "a"),
            ("Impersonate-Uid", "b"),
            ("Impersonate-Extra-C", "c"),
            ("Accept", "*/*"),
        ]);
        Impersonation::strip(&mut headers);
        assert_eq!(headers.len(), 1);
    }
}
