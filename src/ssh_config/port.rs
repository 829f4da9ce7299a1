//! A port as ssh_config and jump hosts write it: a number, or a service of /etc/services.

use std::sync::OnceLock;

/// A port by its number, or by the name of a service, as OpenSSH's `a2port` takes it.
pub(crate) fn parse_port(text: &str) -> Option<u16> {
    match text.parse::<u16>() {
        Ok(port) => Some(port).filter(|port| *port > 0),
        Err(_) => find_service_port(read_etc_services(), text),
    }
}

#[expect(clippy::disallowed_methods, reason = "the laptop's list of services, read once")]
fn read_etc_services() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| std::fs::read_to_string("/etc/services").unwrap_or_default())
}

/// The TCP port of a service or of its alias, in a text like /etc/services (services(5)).
fn find_service_port(text: &str, name: &str) -> Option<u16> {
    text.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let (first, place) = (words.next()?, words.next()?);
        let port = place.strip_suffix("/tcp")?;
        (first == name || words.any(|alias| alias == name)).then(|| port.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_names_resolve_from_etc_services() {
        let text = "# Network services\nssh\t\t22/tcp\t\t\t# SSH\nsyslog\t514/udp\nhttps 443/tcp www-s web\n";
        assert_eq!(
            (find_service_port(text, "ssh"), find_service_port(text, "web"), find_service_port(text, "syslog")),
            (Some(22), Some(443), None)
        );
        assert_eq!(
            (parse_port("2222"), parse_port("0"), parse_port("65536"), parse_port("no such service")),
            (Some(2222), None, None, None)
        );
    }
}
