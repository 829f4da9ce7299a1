//! How the hosts are reached and where every SSH setting comes from, for `plan -v` and `plan --json`. Hosts with equal settings are grouped.
//! Connects to no host.

use unicode_width::UnicodeWidthStr as _;

use crate::remote::{HopReport, HopSetting};
use crate::text::host_patterns::compress_to_pattern;
use crate::text::width::wrap_with_indent;

/// A host's name and its hops, or the error in its settings.
pub(crate) type HostRoute = (String, Result<Vec<HopReport>, String>);

/// Columns.
const LINE_WIDTH: usize = 80;
/// More addresses than this are shortened to the first and the last.
const MAX_LISTED_ADDRESSES: usize = 3;

/// Empty without routes.
pub(crate) fn format_text(routes: &[HostRoute]) -> String {
    let mut groups: Vec<(&HostRoute, Vec<&HostRoute>)> = Vec::new();
    for route in routes {
        match groups.iter_mut().find(|(first, _)| has_same_settings(&first.1, &route.1)) {
            Some((_, members)) => members.push(route),
            None => groups.push((route, vec![route])),
        }
    }
    let mut lines = if groups.is_empty() { Vec::new() } else { vec!["ssh".to_owned()] };
    for ((_, route), members) in groups {
        let names: Vec<String> = members.iter().map(|(name, _)| name.clone()).collect();
        let count = if names.len() > 1 { format!(" ({} hosts)", names.len()) } else { String::new() };
        lines.extend(wrap(2, &format!("{}{count}", compress_to_pattern(&names))));
        match route {
            Err(error) => lines.extend(wrap(4, error)),
            Ok(hops) => {
                for hop in hops {
                    if hop.is_jump {
                        lines.push(format!("    through {}", hop.name));
                    } else if hops.len() > 1 {
                        lines.push("    to the host".to_owned());
                    }
                    let addresses: Vec<String> = members.iter().filter_map(|(_, route)| host_address(route, hop)).collect();
                    push_settings_table(&mut lines, &hop.settings, &addresses);
                }
            }
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// By host, first hop first.
pub(crate) fn to_json(routes: &[HostRoute]) -> serde_json::Value {
    let setting = |s: &HopSetting| serde_json::json!({ "name": s.name, "value": s.value, "origin": s.origin });
    let hop = |h: &HopReport| {
        let settings: Vec<serde_json::Value> = h.settings.iter().map(setting).collect();
        serde_json::json!({ "name": h.name, "jump": h.is_jump, "settings": settings })
    };
    let route = |(name, route): &HostRoute| match route {
        Ok(hops) => serde_json::json!({ "host": name, "hops": hops.iter().map(hop).collect::<Vec<_>>() }),
        Err(error) => serde_json::json!({ "host": name, "error": error }),
    };
    routes.iter().map(route).collect()
}

/// Whether two hosts differ only in their names and addresses.
fn has_same_settings(a: &Result<Vec<HopReport>, String>, b: &Result<Vec<HopReport>, String>) -> bool {
    let setting = |(a, b): (&HopSetting, &HopSetting), jump: bool| {
        a.name == b.name && a.origin == b.origin && (a.value == b.value || (!jump && a.name == "HostName"))
    };
    let hop = |(a, b): (&HopReport, &HopReport)| {
        a.is_jump == b.is_jump
            && (!a.is_jump || a.name == b.name)
            && a.settings.len() == b.settings.len()
            && a.settings.iter().zip(&b.settings).all(|pair| setting(pair, a.is_jump))
    };
    match (a, b) {
        (Ok(a), Ok(b)) => a.len() == b.len() && a.iter().zip(b).all(hop),
        (Err(a), Err(b)) => a == b,
        _ => false,
    }
}

/// The host's address, if `hop` is the last hop; jump hosts are equal for all hosts of a group.
fn host_address(route: &Result<Vec<HopReport>, String>, hop: &HopReport) -> Option<String> {
    let last = route.as_ref().ok()?.last().filter(|_| !hop.is_jump)?;
    last.settings.iter().find(|s| s.name == "HostName").map(|s| s.value.clone())
}

/// Columns: name, value, origin. An origin that does not fit goes on its own line.
fn push_settings_table(lines: &mut Vec<String>, settings: &[HopSetting], addresses: &[String]) {
    let width = |f: fn(&HopSetting) -> &str| settings.iter().map(|s| f(s).width()).max().unwrap_or(0);
    let (names, origins) = (width(|s| s.name), width(|s| &s.origin));
    let indent = 6 + names + 2;
    let value_width = LINE_WIDTH.saturating_sub(indent + 2 + origins).max(1);
    for HopSetting { name, value, origin } in settings {
        let value = if *name == "HostName" && addresses.len() > 1 { shorten_addresses(addresses) } else { value.clone() };
        if value.width() <= value_width {
            lines.push(format!("      {name:<names$}  {value}{}  {origin}", " ".repeat(value_width - value.width())));
        } else {
            lines.extend(wrap(6, &format!("{name:<names$}  {value}")));
            lines.push(format!("{}{origin}", " ".repeat(indent + value_width + 2)));
        }
    }
}

fn shorten_addresses(addresses: &[String]) -> String {
    let compressed = compress_to_pattern(addresses);
    match addresses {
        [first, .., last] if addresses.len() > MAX_LISTED_ADDRESSES && compressed.width() > 40 => format!("{first} … {last}"),
        _ => compressed,
    }
}

fn wrap(indent: usize, text: &str) -> Vec<String> {
    wrap_with_indent(text, &" ".repeat(indent), &" ".repeat(indent + 2), LINE_WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(name: &str, jump: bool, settings: &[(&'static str, &str, &str)]) -> HopReport {
        let setting = |(name, value, origin): &(&'static str, &str, &str)| HopSetting {
            name,
            value: (*value).to_owned(),
            origin: (*origin).to_owned(),
        };
        HopReport { name: name.to_owned(), is_jump: jump, settings: settings.iter().map(setting).collect() }
    }

    fn host_route(name: &str, address: &str, user: &str) -> HostRoute {
        let bastion = hop("bastion", true, &[("HostName", "203.0.113.7", "~/.ssh/config:2")]);
        let host = [
            ("HostName", address, "inventory"),
            ("User", user, "~/.ssh/config:12"),
            ("IdentityFile", "~/.ssh/keys of the whole team/id_ed25519_for_the_gpu_cluster", "~/.ssh/conf.d/team.conf:31"),
        ];
        (name.to_owned(), Ok(vec![bastion, hop(name, false, &host)]))
    }

    #[test]
    fn hosts_with_equal_settings_are_grouped() {
        let routes = [
            host_route("gpu01", "10.0.0.1", "root"),
            host_route("gpu02", "10.0.0.2", "root"),
            host_route("odd", "10.0.0.9", "li"),
            ("bad".to_owned(), Err("~/.ssh/config:3: unknown keyword `prot`".to_owned())),
        ];
        let text = format_text(&routes);
        let expected = "\
ssh
  gpu[01-02] (2 hosts)
    through bastion
      HostName  203.0.113.7                                      ~/.ssh/config:2
    to the host
      HostName      10.0.0.[1-2]                      inventory
      User          root                              ~/.ssh/config:12
      IdentityFile  ~/.ssh/keys of the whole team/id_ed25519_for_the_gpu_cluster
                                                      ~/.ssh/conf.d/team.conf:31
  odd
";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.ends_with("  bad\n    ~/.ssh/config:3: unknown keyword `prot`\n"), "{text}");
        assert!(text.lines().all(|line| line.width() <= LINE_WIDTH), "{text}");
        assert_eq!(format_text(&[]), "");
    }

    #[test]
    fn json_lists_every_host_with_its_hops() {
        let value = to_json(&[host_route("gpu01", "10.0.0.1", "root"), ("bad".to_owned(), Err("no".to_owned()))]);
        assert_eq!(
            value[0]["hops"][1]["settings"][1],
            serde_json::json!({ "name": "User", "value": "root", "origin": "~/.ssh/config:12" })
        );
        assert_eq!((value[0]["hops"][0]["jump"].as_bool(), value[1]["error"].as_str()), (Some(true), Some("no")));
    }
}
