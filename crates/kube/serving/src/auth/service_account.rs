//! User names of service accounts and nodes.

const USER_PREFIX: &str = "system:serviceaccount:";
const NODE_PREFIX: &str = "system:node:";

pub fn user_name(namespace: &str, name: &str) -> String {
    format!("{USER_PREFIX}{namespace}:{name}")
}

pub fn groups(namespace: &str) -> Vec<String> {
    vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
    ]
}

/// Namespace and name, where the user is a service account.
pub fn split_user_name(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(USER_PREFIX)?.split_once(':')?;
    (is_label(namespace) && is_subdomain(name)).then_some((namespace, name))
}

/// The node's name, where the user is a node.
pub fn node_of_user_name(user: &str) -> Option<&str> {
    let name = user.strip_prefix(NODE_PREFIX)?;
    is_subdomain(name).then_some(name)
}

/// RFC 1123: lower case letters, digits and inner dashes, at most 63.
fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_subdomain_part(text)
}

/// Labels joined with dots, at most 253 characters in all.
pub(super) fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_subdomain_part)
}

pub(super) fn is_subdomain_part(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let edges = [text.bytes().next(), text.bytes().next_back()];
    edges.into_iter().all(|edge| edge.is_some_and(plain))
        && text.bytes().all(|byte| plain(byte) || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(split_user_name(&user_name("a", "b.c")), Some(("a", "b.c")));
        for bad in [
            "a",
            "system:serviceaccount:a",
            "system:serviceaccount:a:b:c",
        ] {
            assert_eq!(split_user_name(bad), None, "{bad}");
        }
        for bad in ["a.b:c", "A:b", ":b", "a:", "-a:b", "a:b_c"] {
            assert_eq!(split_user_name(&format!("{USER_PREFIX}{bad}")), None);
        }
        assert_eq!(node_of_user_name("system:node:n.1"), Some("n.1"));
        assert_eq!(node_of_user_name("system:node:N"), None);
        assert_eq!(node_of_user_name("system:node:"), None);
    }
}
