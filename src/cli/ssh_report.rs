//! How the hosts are reached, and where every setting came from, for `plan -v` and `plan --json`. Hosts with the same settings stand together.
//!
//! Uses `remote` for what was decided. Asks nobody.

use unicode_width::UnicodeWidthStr as _;

use crate::remote::{HopReport, HopSetting};
use crate::text::host_patterns::compress_to_pattern;
use crate::text::width::wrap_with_indent;

/// A host's name and its hops, or what is wrong with its settings.
pub(crate) type HostRoute = (String, Result<Vec<HopReport>, String>);

/// Columns that a person has.
const LINE_WIDTH: usize = 80;
/// Names of hosts that are written out before they become a number.
const MAX_LISTED_ADDRESSES: usize = 3;

/// The ways for people; nothing where there are none.
pub(crate) fn format_text(routes: &[HostRoute]) -> String {
    let mut groups: Vec<(&HostRoute, Vec<&HostRoute>)> = Vec::new();
    for way in routes {
        match groups.iter_mut().find(|(first, _)| has_same_settings(&first.1, &way.1)) {
            Some((_, all)) => all.push(way),
            None => groups.push((way, vec![way])),
        }
    }
    let mut lines = if groups.is_empty() { Vec::new() } else { vec!["ssh".to_owned()] };
    for ((_, way), all) in groups {
        let names: Vec<String> = all.iter().map(|(name, _)| name.clone()).collect();
        let count = if names.len() > 1 { format!(" ({} hosts)", names.len()) } else { String::new() };
        lines.extend(wrap(2, &format!("{}{count}", compress_to_pattern(&names))));
        match way {
            Err(what) => lines.extend(wrap(4, what)),
            Ok(hops) => {
                for hop in hops {
                    if hop.is_jump {
                        lines.push(format!("    through {}", hop.name));
                    } else if hops.len() > 1 {
                        lines.push("    to the host".to_owned());
                    }
                    let addresses: Vec<String> = all.iter().filter_map(|(_, way)| host_address(way, hop)).collect();
                    push_settings_table(&mut lines, &hop.settings, &addresses);
                }
            }
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The ways for programs: by host, first hop first.
pub(crate) fn to_json(routes: &[HostRoute]) -> serde_json::Value {
    let setting = |s: &HopSetting| serde_json::json!({ "name": s.name, "value": s.value, "origin": s.origin });
    let hop = |h: &HopReport| {
        let settings: Vec<serde_json::Value> = h.settings.iter().map(setting).collect();
        serde_json::json!({ "name": h.name, "jump": h.is_jump, "settings": settings })
    };
    let way = |(name, way): &HostRoute| match way {
        Ok(hops) => serde_json::json!({ "host": name, "hops": hops.iter().map(hop).collect::<Vec<_>>() }),
        Err(what) => serde_json::json!({ "host": name, "error": what }),
    };
    routes.iter().map(way).collect()
}

/// Whether two hosts differ in nothing but their own names and addresses.
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

/// The address of a host where `hop` is the end of its way; a jump host is the same for all.
fn host_address(route: &Result<Vec<HopReport>, String>, hop: &HopReport) -> Option<String> {
    let last = route.as_ref().ok()?.last().filter(|_| !hop.is_jump)?;
    last.settings.iter().find(|s| s.name == "HostName").map(|s| s.value.clone())
}

/// Name, value, origin; an origin that does not fit stands on a line of its own.
fn push_settings_table(lines: &mut Vec<String>, settings: &[HopSetting], addresses: &[String]) {
    let width = |f: fn(&HopSetting) -> &str| settings.iter().map(|s| f(s).width()).max().unwrap_or(0);
    let (names, origins) = (width(|s| s.name), width(|s| &s.origin));
    let indent = 6 + names + 2;
    let room = LINE_WIDTH.saturating_sub(indent + 2 + origins).max(1);
    for HopSetting { name, value, origin } in settings {
        let value = if *name == "HostName" && addresses.len() > 1 { shorten_addresses(addresses) } else { value.clone() };
        if value.width() <= room {
            lines.push(format!("      {name:<names$}  {value}{}  {origin}", " ".repeat(room - value.width())));
        } else {
            lines.extend(wrap(6, &format!("{name:<names$}  {value}")));
            lines.push(format!("{}{origin}", " ".repeat(indent + room + 2)));
        }
    }
}

fn shorten_addresses(addresses: &[String]) -> String {
    let folded = compress_to_pattern(addresses);
    match addresses {
        [first, .., last] if addresses.len() > MAX_LISTED_ADDRESSES && folded.width() > 40 => format!("{first} … {last}"),
        _ => folded,
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
        let ways = [
            host_route("gpu01", "10.0.0.1", "root"),
            host_route("gpu02", "10.0.0.2", "root"),
            host_route("odd", "10.0.0.9", "li"),
            ("bad".to_owned(), Err("~/.ssh/config:3: unknown keyword `prot`".to_owned())),
        ];
        let text = format_text(&ways);
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
