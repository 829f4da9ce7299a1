//! Host names folded for people: `gpu[01-16]`, with a bound on their length.
//!
//! Uses `inventory` for the names.

/// Folds names whatever their order: `gpu01 gpu02 gpu03` is `gpu[01-03]`.
pub fn fold(names: &[String]) -> String {
    let mut names = names.to_vec();
    names.sort();
    names.dedup();
    crate::inventory::expand::fold(&names)
}

/// Folds numbers: `0-3,7`.
pub fn numbers(list: &[u32]) -> String {
    let mut list: Vec<u64> = list.iter().map(|n| u64::from(*n)).collect();
    list.sort_unstable();
    list.dedup();
    ranges(&list, 0)
}

fn ranges(list: &[u64], width: usize) -> String {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for n in list {
        match parts.last_mut() {
            Some((_, end)) if *end + 1 == *n => *end = *n,
            _ => parts.push((*n, *n)),
        }
    }
    let text = |(from, to): &(u64, u64)| if from == to { format!("{from:0width$}") } else { format!("{from:0width$}-{to:0width$}") };
    parts.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_what_belongs_together() {
        for (names, folded) in [
            ("", ""),
            ("gpu01", "gpu01"),
            ("gpu01 gpu02 gpu03 gpu16", "gpu[01-03,16]"),
            ("gpu9 gpu10 a b", "gpu9,gpu10,a,b"),
            ("n1.x n2.x 中3", "n[1-2].x,中3"),
            ("10.0.0.7 10.0.0.8", "10.0.0.[7-8]"),
            ("m x99999999999999999999", "m,x99999999999999999999"),
        ] {
            let names: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
            assert_eq!(fold(&names), folded);
        }
        assert_eq!(numbers(&[3, 0, 1, 2, 7, 7]), "0-3,7");
    }
}
