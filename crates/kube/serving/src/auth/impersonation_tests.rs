use super::*;

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, value.parse().unwrap());
    }
    headers
}

fn asker() -> UserInfo {
    UserInfo {
        name: "alice".to_owned(),
        ..UserInfo::default()
    }
}

fn ways(asker: &UserInfo, pairs: &[(&str, &str)]) -> Vec<Way> {
    let wanted = Impersonation::wanted(&headers(pairs)).unwrap().unwrap();
    let pods = ResourceAttributes {
        verb: Some("list".to_owned()),
        group: Some("metrics.k8s.io".to_owned()),
        resource: Some("pods".to_owned()),
        ..ResourceAttributes::default()
    };
    wanted.ways(asker, &Access::resource(pods), None)
}

fn question(access: &Access) -> String {
    let of = |text: &Option<String>| text.clone().unwrap_or_default();
    match access {
        Access::Path(path) => format!("{} {}", of(&path.verb), of(&path.path)),
        Access::Resource(r) => {
            let parts = [&r.verb, &r.group, &r.resource, &r.subresource, &r.namespace];
            let parts: Vec<String> = parts
                .into_iter()
                .map(of)
                .filter(|p| !p.is_empty())
                .collect();
            format!("{} {}", parts.join(" "), of(&r.name))
                .trim()
                .to_owned()
        }
    }
}

/// What would be asked, way by way.
fn questions(asker: &UserInfo, pairs: &[(&str, &str)]) -> Vec<Vec<String>> {
    let shown = |need: &Need| match need {
        Need::One(access) => question(access),
        Need::Many(all, each) => format!("{} or {} others", question(all), each.len()),
        Need::Never(access, why) => format!("{} never: {why}", question(access)),
    };
    ways(asker, pairs)
        .iter()
        .map(|way| way.needs.iter().map(shown).collect())
        .collect()
}

#[test]
fn a_person() {
    let pairs = [
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "devs"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-Acme%2Fscopes", "view"),
    ];
    assert_eq!(
        questions(&asker(), &pairs),
        [
            vec![
                "impersonate-on:user-info:list metrics.k8s.io pods",
                "impersonate:user-info authentication.k8s.io users jane",
                "impersonate:user-info authentication.k8s.io uids 7",
                "impersonate:user-info authentication.k8s.io groups devs",
                "impersonate:user-info authentication.k8s.io groups ops",
                "impersonate:user-info authentication.k8s.io userextras acme/scopes view",
            ],
            vec![
                "impersonate users jane",
                "impersonate authentication.k8s.io uids 7",
                "impersonate groups devs",
                "impersonate groups ops",
                "impersonate authentication.k8s.io userextras acme/scopes view",
            ],
        ]
    );
    for way in ways(&asker(), &pairs) {
        assert_eq!(way.asker, asker());
        assert_eq!(way.user.groups, ["devs", "ops", "system:authenticated"]);
        assert_eq!(way.user.uid, "7");
        assert_eq!(way.user.extra["acme/scopes"], ["view"]);
    }
}

#[test]
fn many_and_too_mighty_groups() {
    let with = |groups: &[&'static str]| {
        let mut pairs = vec![("Impersonate-User", "jane")];
        pairs.extend(groups.iter().map(|group| ("Impersonate-Group", *group)));
        questions(&asker(), &pairs)
    };
    let many = with(&["a", "b", "c", "d"]);
    assert_eq!(
        many[0][2],
        "impersonate:user-info authentication.k8s.io groups * or 4 others"
    );
    assert_eq!(many[1].len(), 5);
    let masters = with(&["system:masters"]);
    assert_eq!(
        masters[0][2],
        "impersonate:user-info authentication.k8s.io groups system:masters never: \
         impersonating the system:masters group is not allowed"
    );
    assert_eq!(masters[1][1], "impersonate groups system:masters");
}

#[test]
fn extras_that_only_the_old_way_takes() {
    let wrong = |key: &str, value: &str| {
        let name = format!("Impersonate-Extra-{key}");
        let asked = questions(&asker(), &[("Impersonate-User", "jane"), (&name, value)]);
        let narrow = asked[0].last().unwrap().clone();
        narrow.split_once("never: ").map(|(_, why)| why.to_owned())
    };
    assert_eq!(wrong("acme.io%2Fscopes", "view"), None);
    assert_eq!(
        wrong("scopes", "view").unwrap(),
        "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: \"scopes\": must be a \
         domain-prefixed path (such as \"acme.io/foo\")"
    );
    assert_eq!(
        wrong("acme.io%2F%41", "view").unwrap(),
        "impersonating a non-lowercase key in extra is not allowed: \"acme.io/A\""
    );
    assert_eq!(
        wrong("acme.io%2Fa", "").unwrap(),
        "impersonating the empty string value in extra is not allowed"
    );
}

#[test]
fn a_service_account_and_nobody() {
    let robot = [("Impersonate-User", "system:serviceaccount:ns:robot")];
    assert_eq!(
        questions(&asker(), &robot),
        [
            vec![
                "impersonate-on:serviceaccount:list metrics.k8s.io pods",
                "impersonate:serviceaccount authentication.k8s.io serviceaccounts ns robot",
            ],
            vec!["impersonate serviceaccounts ns robot"],
        ]
    );
    assert_eq!(
        ways(&asker(), &robot)[0].user.groups,
        [
            "system:serviceaccounts",
            "system:serviceaccounts:ns",
            "system:authenticated"
        ]
    );
    // With groups of its own it is no plain service account any more.
    let odd = [robot[0], ("Impersonate-Group", "g")];
    assert_eq!(questions(&asker(), &odd).len(), 1);
    let nobody = ways(&asker(), &[("Impersonate-User", "system:anonymous")]);
    assert_eq!(nobody[0].user.groups, ["system:unauthenticated"]);
    let half = questions(
        &asker(),
        &[("Impersonate-User", "system:serviceaccount:ns")],
    );
    assert_eq!(half[1], ["impersonate users system:serviceaccount:ns"]);
}

#[test]
fn a_node_and_whoever_is_on_it() {
    let pairs = [("Impersonate-User", "system:node:n1")];
    let from_afar = questions(&asker(), &pairs);
    assert_eq!(
        from_afar,
        [
            vec![
                "impersonate-on:arbitrary-node:list metrics.k8s.io pods",
                "impersonate:arbitrary-node authentication.k8s.io nodes n1",
            ],
            vec!["impersonate users system:node:n1"],
        ]
    );
    let mut there = asker();
    there.name = "system:serviceaccount:ns:robot".to_owned();
    there
        .extra
        .insert(NODE_OF_POD.to_owned(), vec!["n1".to_owned()]);
    let found = ways(&there, &pairs);
    assert_eq!(found.len(), 3);
    assert_eq!(
        questions(&there, &pairs)[0][1],
        "impersonate:associated-node authentication.k8s.io nodes *"
    );
    assert_eq!(found[0].asker.extra[ASSOCIATED_KEYS], [NODE_OF_POD]);
    assert_eq!(
        found[0].user.groups,
        ["system:nodes", "system:authenticated"]
    );
    assert_eq!(found[2].user.groups, ["system:authenticated"]);
    there.extra.clear();
    assert_eq!(ways(&there, &pairs).len(), 2);
}

#[test]
fn nobody_in_particular() {
    assert_eq!(Impersonation::wanted(&headers(&[])), Ok(None));
    let message = |pairs| Impersonation::wanted(&headers(pairs)).unwrap_err();
    assert_eq!(
        message(&[("Impersonate-Group", "x"), ("Impersonate-Group", "y")]),
        "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"x\", \"y\"}, \
         Extra:map[string][]string(nil)} without impersonating a user name"
    );
    assert_eq!(
        message(&[("Impersonate-Extra-a", "b")]),
        "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string(nil), \
         Extra:map[string][]string{\"a\":[]string{\"b\"}}} without impersonating a user name"
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
