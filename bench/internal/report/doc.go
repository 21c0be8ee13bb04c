// Package report gathers measured figures and prints them: as a table for people, as Markdown for the documentation, as
// JSON, and in one line of stable names for programs.
package report
