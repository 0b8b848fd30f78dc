//! `docs/errors.md` lists every error code that a client can get, and no other.

use towline_api::CODES;

#[test]
fn the_table_of_codes_in_the_docs_matches_the_code() {
    let document = include_str!("../../../../docs/errors.md");
    let rows: Vec<Vec<&str>> = document
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    let listed: Vec<(String, String)> =
        rows.iter().map(|row| (row[0].replace('`', ""), row[1].to_owned())).collect();
    let coded: Vec<(String, String)> =
        CODES.iter().map(|code| (code.name().to_owned(), code.status().to_string())).collect();
    assert_eq!(listed, coded);
    for row in rows {
        assert_eq!(row.len(), 4, "code, status, meaning, what to do: {row:?}");
        assert!(row.iter().all(|cell| !cell.is_empty()), "{row:?}");
    }
}
